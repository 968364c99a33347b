"""MMPL, our form of Tutorial D: the only form a program has after `algebra`.

Every node is immutable, hashable and compared by content; a span says where in the program's text it came from and
takes no part in comparison. Names are exact: case has been settled by then.
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
    """A node's hash is made with the node, of its parts' hashes: comparing and finding whole programs is cheap, and no
    chain of operators is too long for it."""

    def __init_subclass__(cls) -> None:
        cls.__hash__ = Node.__hash__  # type: ignore[method-assign]  # else each dataclass would make its own
        cls.__eq__ = Node.__eq__  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((type(self).__name__, self._content())))

    def _content(self) -> tuple[object, ...]:
        """What makes two nodes of one class the same."""
        return tuple([getattr(self, name) for name in _compared_fields(type(self))])  # type: ignore[arg-type]  # a class has a hash

    def __setstate__(self, state: dict[str, object]) -> None:
        """A hash of text is another in every process."""
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
    """`value` is of `type` as `smile.algebra.types` says; NULL is None of any type."""

    value: Value
    type: DataType

    def _content(self) -> tuple[object, ...]:
        """1 = 1.0 = True in Python, and 1.0 = 1.00 among decimals, but they are not the same constant."""
        return self.type, type(self.value), self.value, str(self.value)


@dataclass(frozen=True)
class Call(Expr):
    """An operator or a function of the catalogue `smile.algebra.scalars`, by its name there: `+`, `and`, `abs`."""

    function: str
    args: tuple[Expr, ...]


@dataclass(frozen=True)
class Cast(Expr):
    arg: Expr
    type: DataType


@dataclass(frozen=True)
class Case(Expr):
    """The value of the first branch whose condition is true, else `otherwise`."""

    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr


AggregateName = OneOf["sum", "count", "min", "max", "avg", "latest", "count_distinct", "group"]


@dataclass(frozen=True)
class Aggregate(Node):
    """count of no argument counts rows; group collects `columns` of the members as a nested relation."""

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
    """The columns named stay visible, in this order. Key columns not named stay too, hidden."""

    input: Rel
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Extend(Rel):
    """New columns; none sees another of the same EXTEND."""

    input: Rel
    assignments: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True)
class Rename(Rel):
    """(old, new) pairs, all at once."""

    input: Rel
    pairs: tuple[tuple[str, str], ...]


JoinKind = OneOf["inner", "left", "right", "full", "semi", "anti", "match"]


@dataclass(frozen=True)
class Join(Rel):
    """`on` equates (left, right) columns. A pair of one name is one column of the result; else names are disjoint.

    `when` is what else must hold of a pair of rows. semi, anti and match give left rows only; match adds the Boolean
    column `mark`. `null_aware` is NOT IN's and IN's treatment of NULL: a NULL on either side leaves the answer unknown.
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
    """Each left row with the right row of the greatest tick `at[1]` at or below the left's `at[0]`, among those that
    `on` equates. Names as in `Join`."""

    kind: OneOf["inner", "left"]
    left: Rel
    right: Rel
    on: tuple[tuple[str, str], ...]
    ticks: tuple[str, str]


@dataclass(frozen=True)
class Summarize(Rel):
    """One row a group; at least one aggregate. `per` empty: one row, always."""

    input: Rel
    per: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]


@dataclass(frozen=True)
class Distinct(Rel):
    """Keyed on all visible columns."""

    input: Rel


@dataclass(frozen=True)
class Best(Rel):
    """The k least rows by (expression, descending) pairs, ties to the smaller key; in each group of `per`."""

    input: Rel
    k: int
    by: tuple[tuple[Expr, bool], ...]
    per: tuple[str, ...]


@dataclass(frozen=True)
class Window(Rel):
    """tumble and hop add window_start and window_end, aligned at 0; hop repeats a row once a window (its key gains
    window_start). last keeps the rows of the last `size` as of the horizon. `size` and `slide` are intervals."""

    kind: OneOf["tumble", "hop", "last"]
    input: Rel
    on: str
    size: int
    slide: int | None = None


@dataclass(frozen=True)
class Over(Rel):
    """To each row, aggregates over the rows of its `per` whose `by` lies in [by - range, by]; None is unbounded."""

    input: Rel
    per: tuple[str, ...]
    by: str
    range: int | None
    aggregates: tuple[tuple[str, Aggregate], ...]


@dataclass(frozen=True)
class Silence(Rel):
    """Adds the Boolean column `name`: no row of the same `per` in (tick, tick + longer_than]."""

    input: Rel
    name: str
    tick: str
    per: tuple[str, ...]
    longer_than: int


@dataclass(frozen=True)
class Merge(Rel):
    """Histories in one, keyed by tick and `source`, the input's position from 1."""

    inputs: tuple[Rel, ...]


@dataclass(frozen=True)
class Union(Rel):
    """UNION ALL: all inputs have the same visible columns; the key gains `branch`, the position from 1."""

    inputs: tuple[Rel, ...]


# ── programs ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Definition(Node):
    """What gives a relation its name."""

    name: str
    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class StreamDef(Definition):
    """Keyed by `tick`. Each check is a predicate that publishing enforces; NULL passes it, as in SQL."""

    tick: str
    columns: tuple[tuple[str, DataType], ...]
    checks: tuple[Expr, ...] = ()
    publisher_timed: bool = False


@dataclass(frozen=True)
class ViewDef(Definition):
    """`shared`: not the user's, but made by a rewrite for what several views have in common (printed as LET)."""

    body: Rel
    shared: bool = False


@dataclass(frozen=True)
class Program(Node):
    """Views stand in an order in which each refers only to those before it."""

    streams: tuple[StreamDef, ...]
    views: tuple[ViewDef, ...]
    subscriptions: tuple[str, ...]
