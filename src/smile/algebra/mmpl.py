"""The syntax tree of MMPL, a relational algebra based on Tutorial D. All later stages work on MMPL only.

Every node is immutable, hashable and compared by content. Its span is its position in the program's text and is ignored
in comparisons. Names are exact: they have been resolved to the declared case.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from typing import Final, Literal as OneOf, Union as AnyOf

from smile.algebra.coercions import interval_text
from smile.algebra.names import name_text, names_text
from smile.algebra.types import BYTES, STRING, DataType, Value
from smile.horizons import internal_name
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


AggregateName = OneOf[
    "sum", "count", "min", "max", "avg", "latest", "earliest", "count_distinct", "group", "percentile_cont",
    "percentile_disc", "string_agg", "array_concat_agg",
]  # fmt: skip


PERCENTILES: Final = ("percentile_cont", "percentile_disc")
JOINING_AGGREGATES: Final = ("string_agg", "array_concat_agg")


@dataclass(frozen=True)
class Aggregate(Node):
    """count without an argument counts rows. group collects `columns` of the members as a nested relation. A percentile
    is the value at the `fraction`, from 0 to 1, of the ordered values of the argument; the greatest come first if it is
    `descending`. string_agg joins texts with a `separator`, in the order of `columns`, each in descending order if its
    one of the `directions` says so, and of the key. If it is `distinct`, it joins different texts, ordered.
    array_concat_agg joins arrays in the same way, without a separator."""

    function: AggregateName
    arg: Expr | None = None
    columns: tuple[str, ...] = ()
    fraction: float = 0.5
    descending: bool = False
    separator: str = ""
    directions: tuple[bool, ...] = ()
    distinct: bool = False
    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)

    def line(self) -> "Line":
        if self.function == "group":
            return (f"GROUP {names_text(self.columns)}",)
        if self.arg is None:
            return ("COUNT()",)
        if self.function == "count_distinct":
            return "COUNT(DISTINCT ", self.arg, ")"
        direction = " DESC" if self.descending else ""
        if self.function in PERCENTILES:
            return f"{self.function.upper()}(FLOAT '{self.fraction!r}', ", self.arg, f"{direction})"
        if self.function in JOINING_AGGREGATES:
            name = self.function.upper()
            separator = (", ", Constant(self.separator, STRING)) if self.function == "string_agg" else ()
            if self.distinct:
                return f"{name}(DISTINCT ", self.arg, direction, *separator, ")"
            names = zip(self.columns, self.directions, strict=True)
            order = ", ".join(f"{name_text(name)}{' DESC' if descending else ''}" for name, descending in names)
            return f"{name}(", self.arg, *separator, f" BY {order})" if order else ")"
        return f"{self.function.upper()}(", self.arg, ")"


# ── relational expressions ──────────────────────────────────────────────────────────────────────────────────────────


Line = tuple[AnyOf[str, Expr, "Rel"], ...]
"""Text, with expressions and relations in it that are still to be printed."""


def _join_lines(lines: Iterable[Line]) -> Line:
    return tuple(part for n, line in enumerate(lines) for part in ((", ",) if n else ()) + line)


def _assignments(assignments: Iterable[tuple[str, Line]]) -> Line:
    return "{", *_join_lines((f"{name_text(name)} := ", *value) for name, value in assignments), "}"


def _on(pairs: tuple[tuple[str, str], ...]) -> str:
    conditions = (name_text(a) if a == b else f"{name_text(a)} = {name_text(b)}" for a, b in pairs)
    return " ON {" + ", ".join(conditions) + "}"


@dataclass(frozen=True)
class Rel(Node):
    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)

    def line(self) -> Line:
        """The line of the operator in MMPL without its first input. A relation in it is printed as an operand.

        RelationRef, Imported, Values, Merge and Union have none: they begin a relation.
        """
        raise AssertionError(type(self))


@dataclass(frozen=True)
class RelationRef(Rel):
    """A stream or a view, by name."""

    name: str


@dataclass(frozen=True)
class Imported(Rel):
    """The shown rows of a view of another broker. Only `Program.all_views` has this node: programs refer to the import
    by its name."""

    source: "ImportDef"


@dataclass(frozen=True)
class Values(Rel):
    """Rows that the program has. They exist before any event and never change. `key` identifies them."""

    columns: tuple[tuple[str, DataType], ...]
    key: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True)
class Restrict(Rel):
    input: Rel
    predicate: Expr

    def line(self) -> Line:
        return "WHERE ", self.predicate


@dataclass(frozen=True)
class Project(Rel):
    """`columns` stay visible, in this order. Key columns that are not among them become hidden."""

    input: Rel
    columns: tuple[str, ...]

    def line(self) -> Line:
        return (f"PROJECT {names_text(self.columns)}",)


@dataclass(frozen=True)
class Extend(Rel):
    """Adds columns. An assignment cannot refer to another one of the same EXTEND."""

    input: Rel
    assignments: tuple[tuple[str, Expr], ...]

    def line(self) -> Line:
        return "EXTEND ", *_assignments((name, (value,)) for name, value in self.assignments)


@dataclass(frozen=True)
class Rename(Rel):
    """Renames columns by (old, new) pairs, all at once."""

    input: Rel
    pairs: tuple[tuple[str, str], ...]

    def line(self) -> Line:
        return ("RENAME {" + ", ".join(f"{name_text(old)} AS {name_text(new)}" for old, new in self.pairs) + "}",)


JoinKind = OneOf["inner", "left", "right", "full", "semi", "anti", "match"]
JOIN_KEYWORDS: Final[dict[JoinKind, str]] = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "semi": "SEMIJOIN",
    "anti": "ANTIJOIN",
    "match": "MATCH",
}


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

    def line(self) -> Line:
        null_aware = " NULL AWARE" if self.null_aware else ""
        when = (" WHEN ", self.when) if self.when is not None else ()
        match_column = f" AS {name_text(self.match_column)}" if self.match_column is not None else ""
        return f"{JOIN_KEYWORDS[self.kind]} ", self.right, _on(self.on), null_aware, *when, match_column


@dataclass(frozen=True)
class Asof(Rel):
    """Joins each left row with the right row that has the greatest tick `ticks[1]` not above the left row's `ticks[0]`,
    among the right rows that `on` equates with it. Names are as in `Join`."""

    kind: OneOf["inner", "left"]
    left: Rel
    right: Rel
    on: tuple[tuple[str, str], ...]
    ticks: tuple[str, str]

    def line(self) -> Line:
        keyword = "ASOF JOIN " if self.kind == "inner" else "ASOF LEFT JOIN "
        left_tick, right_tick = map(name_text, self.ticks)
        return keyword, self.right, _on(self.on), f" AT {left_tick} >= {right_tick}"


@dataclass(frozen=True)
class Summarize(Rel):
    """One row per group, with at least one aggregate. If `per` is empty, there is always exactly one row."""

    input: Rel
    per: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]

    def line(self) -> Line:
        return f"SUMMARIZE PER {names_text(self.per)} ADD ", *_assignments((n, a.line()) for n, a in self.aggregates)


@dataclass(frozen=True)
class Distinct(Rel):
    """Each combination of the visible columns once. They are the key."""

    input: Rel

    def line(self) -> Line:
        return ("DISTINCT",)


@dataclass(frozen=True)
class Best(Rel):
    """The first k rows of each group of `per`, ordered by (expression, descending) pairs and then by key."""

    input: Rel
    k: int
    by: tuple[tuple[Expr, bool], ...]
    per: tuple[str, ...]

    def line(self) -> Line:
        order = _join_lines((e, " DESC" if descending else "") for e, descending in self.by)
        return f"BEST {self.k} BY ", *order, f" PER {names_text(self.per)}"


@dataclass(frozen=True)
class Window(Rel):
    """tumble and hop add window_start and window_end, aligned at `offset`. hop repeats a row for each window that
    contains it, and adds window_start to the key. last has the rows of the last `size` before the horizon. `size`,
    `slide` and `offset` are intervals; the offset is at least 0 and less than the slide, or than the size of a tumble.
    """

    kind: OneOf["tumble", "hop", "last"]
    input: Rel
    on: str
    size: int
    slide: int | None = None
    offset: int = 0

    @property
    def windows_per_row(self) -> int:
        """The greatest number of windows that contain a row."""
        return 1 if self.slide is None else -(-self.size // self.slide)

    def line(self) -> Line:
        slide = "" if self.slide is None else f" SLIDE {interval_text(self.slide)}"
        offset = f" OFFSET {interval_text(self.offset)}" if self.offset else ""
        return (f"{self.kind.upper()} {name_text(self.on)}{slide} SIZE {interval_text(self.size)}{offset}",)


@dataclass(frozen=True)
class Session(Rel):
    """Adds window_start: the tick of the first row of the session. Rows of the same `per` are in one session if each
    comes at most `gap` after the one before it. window_start joins the key."""

    input: Rel
    tick: str
    per: tuple[str, ...]
    gap: int

    def line(self) -> Line:
        return (f"SESSION {name_text(self.tick)} PER {names_text(self.per)} GAP {interval_text(self.gap)}",)


@dataclass(frozen=True)
class Over(Rel):
    """Adds aggregates over the rows of the same `per` whose `by` lies in [by - range, by]. None is unbounded."""

    input: Rel
    per: tuple[str, ...]
    by: str
    range: int | None
    aggregates: tuple[tuple[str, Aggregate], ...]

    def line(self) -> Line:
        range_text = "UNBOUNDED" if self.range is None else interval_text(self.range)
        over = f"OVER PER {names_text(self.per)} BY {name_text(self.by)} RANGE {range_text} ADD "
        return over, *_assignments((n, a.line()) for n, a in self.aggregates)


@dataclass(frozen=True)
class OverRows(Rel):
    """Adds aggregates over the rows of the same `per`, ordered by `by`, from `first` to `last`: positions relative to
    the row itself, negative before it."""

    input: Rel
    per: tuple[str, ...]
    by: str
    first: int
    last: int
    aggregates: tuple[tuple[str, Aggregate], ...]

    def line(self) -> Line:
        over = f"OVER PER {names_text(self.per)} BY {name_text(self.by)} ROWS {self.first} TO {self.last} ADD "
        return over, *_assignments((n, a.line()) for n, a in self.aggregates)


@dataclass(frozen=True)
class Ungroup(Rel):
    """Repeats a row for each element of the array in `column`. `names` is the column that it adds for the element,
    `ordinality` that of the position of the element, counted from 1, which joins the key. A row whose array is empty or
    NULL has no rows; if `keeps_empty`, it has one, in which both columns are NULL."""

    input: Rel
    column: str
    names: tuple[str, ...]
    ordinality: str
    keeps_empty: bool = False

    def line(self) -> Line:
        left = "LEFT " if self.keeps_empty else ""
        columns = f"AS {names_text(self.names)} ORDINALITY {name_text(self.ordinality)}"
        return (f"{left}UNGROUP {name_text(self.column)} {columns}",)


@dataclass(frozen=True)
class Silence(Rel):
    """Adds the Boolean column `name`: whether no row of the same `per` lies in (tick, tick + longer_than]."""

    input: Rel
    name: str
    tick: str
    per: tuple[str, ...]
    longer_than: int

    def line(self) -> Line:
        silence = f"{name_text(self.tick)} PER {names_text(self.per)} > {interval_text(self.longer_than)}"
        return (f"SILENCE {{{name_text(self.name)} := {silence}}}",)


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


CHANGE_COLUMN: Final = "change"
"""The column of a stream of a table's changes that says what happens to the row: 'insert' or 'delete'."""

KEYED_CHANGES: Final = ("insert", "update", "delete")
"""What can happen to a row of a table with a primary key. Without a word, it is inserted or updated."""

IS_KEYED_CHANGE: Final = Call(
    "or", tuple(Call("=", (ColumnRef(CHANGE_COLUMN), Constant(change, STRING))) for change in KEYED_CHANGES)
)
"""A check of the stream of a table with a primary key: it has no other column `change`."""


@dataclass(frozen=True)
class StreamDef(Definition):
    """A stream, keyed by `tick`. Events that make a check false are rejected; NULL passes, as in SQL. No two events
    have the same values in the columns of an entry of `unique`, unless one of the values is NULL.

    `whole_commits`: no batch ends within a commit that has events of it, whatever its size.

    `many_origins`: several brokers publish to it. The rows of each origin are read as they come, so rows may lie above
    the stream's horizon, which is the least of its origins'. Its rows do not come in tick order. `home` is the broker
    that decides who its origins are; None if this broker does.

    `is_table`: its events are the changes of a table. The column `change` says whether a row is inserted or deleted,
    the others are the row. Filters of subscriptions can consult the contents of the table.

    `channel`: the key columns of a global stream. Its events come from all producers in the network; None if the stream
    is no global one. Published events are logged under its name; whoever reads it reads a global import.
    """

    tick: str
    columns: tuple[tuple[str, DataType], ...]
    checks: tuple[Expr, ...] = ()
    publisher_timed: bool = False
    whole_commits: bool = False
    unique: tuple[tuple[str, ...], ...] = ()
    many_origins: bool = False
    home: str | None = None
    is_table: bool = False
    channel: tuple[str, ...] | None = None

    @property
    def is_global(self) -> bool:
        return self.channel is not None


@dataclass(frozen=True)
class ViewDef(Definition):
    """`shared` views are created by a rewrite rule for an expression that occurs several times, and printed as LET."""

    body: Rel
    shared: bool = False


ALL_PRODUCERS = ""
"""Instead of the name of a broker: the import is fed by whoever publishes the global stream."""


_CONSUMER = ".global"


def consumer_name(stream: str, digest: str) -> str:
    """The name of what this broker receives of a global stream for its views."""
    return f"{stream}{_CONSUMER}" + (f".{digest}" if digest else "")


def is_consumer_name(name: str) -> bool:
    return _CONSUMER in name


@dataclass(frozen=True)
class Advertisement(Definition):
    """A producer of a global stream at this broker: the events that it publishes satisfy `condition`, which is about
    key columns only."""

    relation: str
    condition: Expr


@dataclass(frozen=True)
class ImportDef(Definition):
    """A relation of another broker, with the rows that satisfy `condition`. If `broker` is `ALL_PRODUCERS`, it is a
    global stream.

    `definition` is the part of the other broker's program that defines the relation; None until it is resolved with a
    recorded type. `edition` counts the definitions and histories that the import has had at this broker.
    `other_brokers` have the same stream: what one of them does not have, another one may.
    """

    broker: str
    relation: str
    condition: Expr | None = None
    definition: "Program | None" = None
    edition: int = 1
    other_brokers: tuple[str, ...] = ()

    @property
    def brokers(self) -> tuple[str, ...]:
        return self.broker, *self.other_brokers

    @property
    def is_global(self) -> bool:
        return self.broker == ALL_PRODUCERS

    @property
    def exporting_program(self) -> "Program":
        """The program in which the relation is defined, with the condition."""
        assert self.definition is not None, f"{self.name} is not resolved"
        if self.condition is None or self.stream is not None:
            return self.definition
        selection = ViewDef(self.relation_name, Restrict(RelationRef(self.relation), self.condition))
        return replace(self.definition, views=(*self.definition.views, selection))

    @property
    def relation_name(self) -> str:
        """The relation in `exporting_program`."""
        return self.relation if self.condition is None or self.stream is not None else f"{self.relation} selected"

    @cached_property
    def stream(self) -> "StreamDef | None":
        """The stream that is imported, as this broker's log has it; None if a view is imported. The ticks come from
        elsewhere, as those of a publisher-timed stream do."""
        stream = self.passed_on_stream
        return None if stream is None else replace(stream, name=self.input_name, publisher_timed=True)

    @cached_property
    def passed_on_stream(self) -> "StreamDef | None":
        """The stream that is imported, as this broker exports it again: as it is defined at its home, with the
        condition."""
        assert self.definition is not None, f"{self.name} is not resolved"
        for stream in self.definition.input_streams:
            if stream.name == self.relation:
                conditions = () if self.condition is None else (self.condition,)
                return replace(stream, name=self.name, checks=(*stream.checks, *conditions), span=self.span)
        return None

    @property
    def input_name(self) -> str:
        """Begins the names of everything that the log has of this import."""
        return self.name if self.edition == 1 else f"{self.name}@{self.edition}"

    @property
    def changes_name(self) -> str:
        """The stream of an imported view's row changes. An event has a block of encoded rows, and its tick is the
        number of the block."""
        return internal_name(self.input_name, "changes")

    @property
    def resets_name(self) -> str:
        """A stream without events. Its horizon is the number of a block: rows that have not changed since are gone."""
        return internal_name(self.input_name, "resets")

    def horizon_name(self, stream: str) -> str:
        """A stream without events. Its horizon is that of `stream` at which the imported view was computed. It has the
        same origins."""
        return f"{self.input_name}/{stream}"

    @property
    def base_streams(self) -> tuple[str, ...]:
        """The streams that an imported view is computed from, as the exporting broker names their horizons."""
        return tuple(self._origins_by_base_stream)

    @property
    def many_origins(self) -> frozenset[str]:
        """Those of its base streams that have many origins."""
        return frozenset(stream for stream, has_many in self._origins_by_base_stream.items() if has_many)

    @property
    def _origins_by_base_stream(self) -> dict[str, bool]:
        """Whether each base stream has many origins."""
        program = self.exporting_program
        origins = {s.name: s.many_origins for s in program.input_streams}
        for nested in program.imports:
            if nested.stream is None:
                origins |= {nested.horizon_name(s): many for s, many in nested._origins_by_base_stream.items()}
        return origins

    @property
    def log_streams(self) -> tuple[StreamDef, ...]:
        """What the log has of this import."""
        if self.stream is not None:
            return (self.stream,)
        columns = (("rows", BYTES),)
        changes = StreamDef(self.changes_name, "block", columns, publisher_timed=True, whole_commits=True)
        many = {self.resets_name: False}
        many |= {self.horizon_name(s): has_many for s, has_many in self._origins_by_base_stream.items()}
        horizons = (StreamDef(n, "tick", (), publisher_timed=True, many_origins=has) for n, has in many.items())
        return (changes, *horizons)


@dataclass(frozen=True)
class RepublisherHistory(Node):
    """The events of a republisher of the last `ticks` stay in the log."""

    relation: str
    ticks: int
    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Program(Node):
    """After `check_program` or `translate`, each view refers only to views before it, and all imports are resolved."""

    streams: tuple[StreamDef, ...]
    views: tuple[ViewDef, ...]
    subscriptions: tuple[str, ...]
    imports: tuple[ImportDef, ...] = ()
    advertisements: tuple[Advertisement, ...] = ()
    histories: tuple[RepublisherHistory, ...] = ()

    @property
    def republishers(self) -> tuple[ImportDef, ...]:
        """The global imports that the program names: this broker makes them available to others."""
        return tuple(i for i in self.imports if i.is_global and not is_consumer_name(i.name))

    @cached_property
    def input_streams(self) -> tuple[StreamDef, ...]:
        """The streams that are published here, and those that are imported."""
        imported_streams = (i.stream for i in self.imports)
        return (*self.streams, *(stream for stream in imported_streams if stream is not None))

    @cached_property
    def log_streams(self) -> tuple[StreamDef, ...]:
        """All streams of the log that the program reads."""
        return (*self.streams, *(stream for i in self.imports for stream in i.log_streams))

    @cached_property
    def imported_views(self) -> tuple[ViewDef, ...]:
        return tuple(view for i in self.imports if (view := _imported_view(i)) is not None)

    @property
    def all_views(self) -> tuple[ViewDef, ...]:
        """The imported views, and those that the program defines."""
        return (*self.imported_views, *self.views)

    @property
    def definitions(self) -> tuple[Definition, ...]:
        return (*self.imports, *self.streams, *self.views)


def _imported_view(import_: ImportDef) -> ViewDef | None:
    """The import as a view; None for a stream that is an input under its own name."""
    if import_.stream is None:
        return ViewDef(import_.name, Imported(import_, span=import_.span), span=import_.span)
    if import_.stream.name == import_.name:
        return None
    return ViewDef(import_.name, RelationRef(import_.stream.name, span=import_.span), span=import_.span)
