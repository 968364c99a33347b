"""The syntax tree of MMPL, a relational algebra based on Tutorial D. All later stages work on MMPL only.

Every node is immutable, hashable and compared by content. Its span is its position in the program's text and is ignored
in comparisons. Names are exact: they have been resolved to the declared case.
"""

from dataclasses import dataclass, field, fields
from functools import cache
from typing import Literal as OneOf

from smile.algebra.types import DataType, Value
from smile.source import Span


@cache
def _compared_fields(node: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(node) if f.compare)


@dataclass(frozen=True)
class Node:
    """The hash of a node is computed once, from the hashes of its parts. Comparisons and lookups of whole programs are
    therefore cheap, and hashing does not recurse over long chains of operators."""

    def __init_subclass__(cls) -> None:
        cls.__hash__ = Node.__hash__  # type: ignore[method-assign]  # dataclasses would generate their own
        cls.__eq__ = Node.__eq__  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((type(self).__name__, self._content())))

    def _content(self) -> tuple[object, ...]:
        """The values by which two nodes of one class are compared."""
        return tuple([getattr(self, name) for name in _compared_fields(type(self))])  # type: ignore[arg-type]  # a class has a hash

    def __setstate__(self, state: dict[str, object]) -> None:
        """Recomputes the hash: hashes of strings differ between processes."""
        self.__dict__.update(state)
        Node.__post_init__(self)

    def __hash__(self) -> int:
        cached: int = self.__dict__["_hash"]
        return cached

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or hash(self) != hash(other):
            return False
        return self._content() == other._content()


# ── scalar expressions ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Expr(Node):
    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class ColumnRef(Expr):
    name: str


@dataclass(frozen=True)
class Constant(Expr):
    """`value` represents a value of `type` as described in `smile.algebra.types`. NULL is None, with any type."""

    value: Value
    type: DataType

    def _content(self) -> tuple[object, ...]:
        """Python treats 1, 1.0 and True as equal, and the decimals 1.0 and 1.00. They are different constants."""
        return self.type, type(self.value), self.value, str(self.value)


@dataclass(frozen=True)
class Call(Expr):
    """An operator or function, by its name in the catalogue `smile.algebra.functions.catalogue`: `+`, `and`, `abs`."""

    function: str
    args: tuple[Expr, ...]


@dataclass(frozen=True)
class Cast(Expr):
    arg: Expr
    type: DataType


@dataclass(frozen=True)
class Case(Expr):
    """The value of the first (condition, value) branch whose condition is true, else `otherwise`."""

    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr


AggregateName = OneOf["sum", "count", "min", "max", "avg", "latest", "count_distinct", "group"]


@dataclass(frozen=True)
class Aggregate(Node):
    """count without an argument counts rows. group collects `columns` of the members as a nested relation."""

    function: AggregateName
    arg: Expr | None = None
    columns: tuple[str, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


# ── relational expressions ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Rel(Node):
    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class RelationRef(Rel):
    """A stream or a view, by name."""

    name: str


@dataclass(frozen=True)
class Restrict(Rel):
    input: Rel
    predicate: Expr


@dataclass(frozen=True)
class Project(Rel):
    """`columns` stay visible, in this order. Key columns that are not among them become hidden."""

    input: Rel
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Extend(Rel):
    """Adds columns. An assignment cannot refer to another one of the same EXTEND."""

    input: Rel
    assignments: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True)
class Rename(Rel):
    """Renames columns by (old, new) pairs, all at once."""

    input: Rel
    pairs: tuple[tuple[str, str], ...]


JoinKind = OneOf["inner", "left", "right", "full", "semi", "anti", "match"]


@dataclass(frozen=True)
class Join(Rel):
    """`on` equates (left, right) columns. A pair of equal names is one column of the result. All other names differ.

    `when` is a further condition on a pair of rows. semi, anti and match give left rows only; match adds the Boolean
    column `match_column`. `null_aware` is how IN and NOT IN treat NULL: a NULL on either side makes the result unknown.
    """

    kind: JoinKind
    left: Rel
    right: Rel
    on: tuple[tuple[str, str], ...]
    when: Expr | None = None
    match_column: str | None = None
    null_aware: bool = False


@dataclass(frozen=True)
class Asof(Rel):
    """Joins each left row with the right row that has the greatest tick `ticks[1]` not above the left row's `ticks[0]`,
    among the right rows that `on` equates with it. Names are as in `Join`."""

    kind: OneOf["inner", "left"]
    left: Rel
    right: Rel
    on: tuple[tuple[str, str], ...]
    ticks: tuple[str, str]


@dataclass(frozen=True)
class Summarize(Rel):
    """One row per group, with at least one aggregate. If `per` is empty, there is always exactly one row."""

    input: Rel
    per: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]


@dataclass(frozen=True)
class Distinct(Rel):
    """Each combination of the visible columns once. They are the key."""

    input: Rel


@dataclass(frozen=True)
class Best(Rel):
    """The first k rows of each group of `per`, ordered by (expression, descending) pairs and then by key."""

    input: Rel
    k: int
    by: tuple[tuple[Expr, bool], ...]
    per: tuple[str, ...]


@dataclass(frozen=True)
class Window(Rel):
    """tumble and hop add window_start and window_end, aligned at 0. hop repeats a row for each window that contains it,
    and adds window_start to the key. last has the rows of the last `size` before the horizon. `size` and `slide` are
    intervals."""

    kind: OneOf["tumble", "hop", "last"]
    input: Rel
    on: str
    size: int
    slide: int | None = None


@dataclass(frozen=True)
class Over(Rel):
    """Adds aggregates over the rows of the same `per` whose `by` lies in [by - range, by]. None is unbounded."""

    input: Rel
    per: tuple[str, ...]
    by: str
    range: int | None
    aggregates: tuple[tuple[str, Aggregate], ...]


@dataclass(frozen=True)
class Silence(Rel):
    """Adds the Boolean column `name`: whether no row of the same `per` lies in (tick, tick + longer_than]."""

    input: Rel
    name: str
    tick: str
    per: tuple[str, ...]
    longer_than: int


@dataclass(frozen=True)
class Merge(Rel):
    """All rows of the inputs, keyed by the tick and `source`, the position of the input counted from 1."""

    inputs: tuple[Rel, ...]


@dataclass(frozen=True)
class Union(Rel):
    """UNION ALL of inputs with the same visible columns. `branch`, the position of the input from 1, joins the key."""

    inputs: tuple[Rel, ...]


# ── programs ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Definition(Node):
    """Defines a named relation."""

    name: str
    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class StreamDef(Definition):
    """A stream, keyed by `tick`. Events that make a check false are rejected; NULL passes, as in SQL."""

    tick: str
    columns: tuple[tuple[str, DataType], ...]
    checks: tuple[Expr, ...] = ()
    publisher_timed: bool = False


@dataclass(frozen=True)
class ViewDef(Definition):
    """`shared` views are created by a rewrite rule for an expression that occurs several times, and printed as LET."""

    body: Rel
    shared: bool = False


@dataclass(frozen=True)
class Program(Node):
    """After `check_program` or `translate`, each view refers only to views before it."""

    streams: tuple[StreamDef, ...]
    views: tuple[ViewDef, ...]
    subscriptions: tuple[str, ...]
