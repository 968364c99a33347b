"""MMPL, our form of Tutorial D: the only form a program has after `algebra`.

Every node is immutable, hashable and compared by content; a span says where in the program's text it came from and
takes no part in comparison. Names are exact: case has been settled by then.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Literal as OneOf

from smile.algebra.types import DataType, Value
from smile.source import Span


@cache
def _compared(node: type) -> tuple[str, ...]:
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
        return tuple([getattr(self, name) for name in _compared(type(self))])  # type: ignore[arg-type]  # a class has a hash

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
class Column(Expr):
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
class Ref(Rel):
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
    mark: str | None = None
    null_aware: bool = False


@dataclass(frozen=True)
class Asof(Rel):
    """Each left row with the right row of the greatest tick `at[1]` at or below the left's `at[0]`, among those that
    `on` equates. Names as in `Join`."""

    kind: OneOf["inner", "left"]
    left: Rel
    right: Rel
    on: tuple[tuple[str, str], ...]
    at: tuple[str, str]


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


# ── walking ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def inputs_of(rel: Rel) -> tuple[Rel, ...]:
    match rel:
        case Ref():
            return ()
        case Join() | Asof():
            return (rel.left, rel.right)
        case Merge() | Union():
            return rel.inputs
        case _:
            return (rel.input,)  # type: ignore[attr-defined]


def walk(rel: Rel) -> Iterator[Rel]:
    """The node and all below it, inputs after the node that reads them."""
    stack = [rel]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(inputs_of(node)))


def with_inputs(rel: Rel, inputs: tuple[Rel, ...]) -> Rel:
    """The same operator on other inputs; the node itself where nothing changed."""
    if all(a is b for a, b in zip(inputs, inputs_of(rel), strict=True)):
        return rel
    match rel:
        case Join() | Asof():
            return replace(rel, left=inputs[0], right=inputs[1])
        case Merge() | Union():
            return replace(rel, inputs=inputs)
        case _:
            return replace(rel, input=inputs[0])  # type: ignore[call-arg]


def rebuild(rel: Rel, change: Callable[[Rel], Rel]) -> Rel:
    """Apply `change` to every node, inputs first."""
    return change(with_inputs(rel, tuple(rebuild(i, change) for i in inputs_of(rel))))


def parts_of(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Call():
            return expr.args
        case Cast():
            return (expr.arg,)
        case Case():
            return (*(e for branch in expr.branches for e in branch), expr.otherwise)
        case _:
            return ()


def columns_in(expr: Expr) -> frozenset[str]:
    names = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, Column):
            names.add(node.name)
        stack.extend(parts_of(node))
    return frozenset(names)


def with_parts(expr: Expr, parts: tuple[Expr, ...]) -> Expr:
    """The same operator on other operands; the node itself where nothing changed."""
    if all(a is b for a, b in zip(parts, parts_of(expr), strict=True)):
        return expr
    match expr:
        case Call():
            return replace(expr, args=parts)
        case Cast():
            return replace(expr, arg=parts[0])
        case Case():
            pairs = tuple(zip(parts[:-1:2], parts[1:-1:2], strict=True))
            return replace(expr, branches=pairs, otherwise=parts[-1])
    raise AssertionError(expr)


def rebuild_expr(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    return change(with_parts(expr, tuple(rebuild_expr(p, change) for p in parts_of(expr))))


def rename_columns(expr: Expr, new: Mapping[str, str]) -> Expr:
    def change(e: Expr) -> Expr:
        return replace(e, name=new[e.name]) if isinstance(e, Column) and e.name in new else e

    return rebuild_expr(expr, change)


def conjuncts(predicate: Expr) -> list[Expr]:
    """The operands of AND, of ANDs within it too, in their order."""
    found: list[Expr] = []
    stack = [predicate]
    while stack:
        top = stack.pop()
        if isinstance(top, Call) and top.function == "and":
            stack.extend(reversed(top.args))
        else:
            found.append(top)
    return found


def conjunction(predicates: Sequence[Expr]) -> Expr:
    """All of them; at least one is given."""
    if len(predicates) == 1:
        return predicates[0]
    return Call("and", tuple(predicates), span=predicates[0].span)
