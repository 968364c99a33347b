"""The base class of operators, and what an operator can ask about other expressions.

An `Operator` has everything about one class of nodes that is known before any event: heading and key, monotonic type,
bottom row, state and partitioning. `smile.operators.catalogue` lists all operators. What an operator means is in
`smile.reference`, and its transform is in `smile.kernels`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

from smile.algebra import mmpl, trees
from smile.algebra.heading import ColumnNames, Heading
from smile.knowledge.state_retention import StateRetention, UnboundedState
from smile.knowledge.types import RelationType
from smile.knowledge.values.cell_knowledge import CellKnowledge

BottomRow = dict[str, CellKnowledge]
"""The cells of an absent row."""

R = TypeVar("R", bound=mmpl.Rel)


# ── what an operator can ask ────────────────────────────────────────────────────────────────────────────────────────


class HeadingLookup(Protocol):
    def heading_of(self, rel: mmpl.Rel) -> Heading: ...

    def named_heading(self, ref: mmpl.RelationRef) -> Heading: ...

    def imported_heading(self, rel: mmpl.Imported) -> Heading: ...


class TypeLookup(Protocol):
    def heading_of(self, rel: mmpl.Rel) -> Heading: ...

    def relation_type(self, rel: mmpl.Rel) -> RelationType: ...

    def named_type(self, ref: mmpl.RelationRef) -> RelationType: ...

    def imported_type(self, rel: mmpl.Imported) -> RelationType: ...

    def without_added_columns(self, rel: mmpl.Rel) -> mmpl.Rel:
        """The input below operators that only add columns. It decides which rows exist, and when they are final."""


class BottomRowLookup(Protocol):
    @property
    def every_row(self) -> "BottomRowLookup":
        """The bottom rows of all rows."""

    @property
    def shown_rows(self) -> "BottomRowLookup":
        """The bottom rows of those rows that are shown in the end."""

    def heading_of(self, rel: mmpl.Rel) -> Heading: ...

    def relation_type(self, rel: mmpl.Rel) -> RelationType: ...

    def bottom_row(self, rel: mmpl.Rel) -> BottomRow: ...

    def named_bottom_row(self, ref: mmpl.RelationRef) -> BottomRow: ...

    def imported_bottom_row(self, rel: mmpl.Imported) -> BottomRow: ...

    def expression_bottom(self, expr: mmpl.Expr, rel: mmpl.Rel) -> CellKnowledge:
        """The bottom of an expression over rows of `rel`."""


class StateLookup(Protocol):
    def relation_type(self, rel: mmpl.Rel) -> RelationType: ...

    def state_of(self, rel: mmpl.Rel) -> list[StateRetention]: ...

    def resolve_ref(self, rel: mmpl.Rel) -> mmpl.Rel:
        """The body of the view, if `rel` refers to one."""

    def row_state(self, description: str, rel: mmpl.Rel, stream: str) -> StateRetention:
        """Rows of a relation that are needed as long as they can be shown."""

    def unbounded_rows(self, rel: mmpl.Rel, stream: str) -> UnboundedState | None:
        """Why the rows of a relation accumulate; None if they are bounded."""

    def is_transient(self, rel: mmpl.Rel) -> bool:
        """Whether every row eventually becomes permanently hidden."""

    def has_stored_groups(self, rel: mmpl.Rel) -> bool:
        """Whether its rows are groups that another transform keeps until the end: then their state bounds this one."""

    def hiding_condition(self, rel: mmpl.Rel, of_group: bool = False) -> str | None:
        """The condition under which a row of `rel` expires: a restriction hides everything computed from it
        permanently.

        The row must not come again. A row of a join does not if it belongs to one row of an append-only left side.
        Neither does a group that is joined to one such row; other groups come again with their next member.
        """

    def view_name(self, rel: mmpl.Rel) -> str:
        """The nearest view downstream: users know its name."""


# ── operators ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Operator(ABC, Generic[R]):
    """The static properties of a class of nodes. Methods that are not abstract have the answer of an operator without
    state that processes each row by itself."""

    only_adds_columns: ClassVar[bool] = False
    """Its rows are those of its input, with more columns."""
    has_rows_of_input: ClassVar[bool] = False
    """Its rows are rows of its input, by the same key: if the input is bounded by stored groups, so are they."""
    keeps_displacement: ClassVar[bool] = False
    """It shows the rows that its input shows, so the type may say how rows displace each other (`Displacement`)."""
    keeps_sessions: ClassVar[bool] = False
    """Its rows are all rows of its input, so the type may say which of them are a session (`Sessions`)."""
    stores_groups: ClassVar[bool] = False
    """Its rows are groups, and its state has them."""

    @abstractmethod
    def heading(self, rel: R, lookup: HeadingLookup) -> Heading:
        """Its columns, their data types and its key. Raises an error if the expression is not valid."""

    @abstractmethod
    def relation_type(self, rel: R, lookup: TypeLookup) -> RelationType:
        """Its monotonic type, including its seals. It depends only on the types of its inputs."""

    @abstractmethod
    def bottom_row(self, rel: R, lookup: BottomRowLookup) -> BottomRow:
        """The cells of an absent row. The cells of every row are within them."""

    def narrow_shown_row(self, rel: R, row: BottomRow, lookup: BottomRowLookup) -> BottomRow:
        """The bottom row of a row that is shown in the end. `row` is the bottom row if the rows of the inputs are."""
        return row

    def map_expressions(self, rel: R, change: Callable[[mmpl.Expr], mmpl.Expr]) -> R:
        """The operator with `change` applied to each of its scalar expressions."""
        return rel

    def early_finals(self, rel: R, lookup: TypeLookup) -> list[str]:
        """Which of its columns are final before the row is sealed, and when."""
        return []

    # state

    def state(self, rel: R, lookup: StateLookup) -> list[StateRetention]:
        """What its transform must keep, and until when."""
        return []

    def input_storage_reason(self, rel: R) -> str | None:
        """Why its transform stores rows of its inputs, as a predicate; None if it stores none."""
        return None

    def has_expiring_rows(self, rel: R, inputs: Sequence[bool]) -> bool:
        """Whether every row is hidden as time passes, given this for each input."""
        return inputs[0]

    def hiding_condition(self, rel: R, source: mmpl.Rel, of_group: bool, lookup: StateLookup) -> str | None:
        """`StateLookup.hiding_condition` of a row of `source` that only this operator reads."""
        return None

    # partitioning

    def partition_columns(self, rel: R, heading: Heading) -> list[ColumnNames] | None:
        """The columns on which rows must agree to be processed together: for each, its name in every input. None: rows
        are processed independently, in any partition. `heading` is that of the result."""
        return None

    def output_partition_columns(self, rel: R, chosen: list[ColumnNames]) -> list[ColumnNames] | None:
        """If its inputs are partitioned by `chosen` columns: for each, its names in the result. None: the result is not
        partitioned by them."""
        return [names[:1] for names in chosen]

    def new_names(self, rel: R) -> Mapping[str, str]:
        """The columns that it renames."""
        return {}


class RowWiseOperator(Operator[R]):
    """Maps each row of its input by itself to one row with the same key."""

    has_rows_of_input = True

    def hiding_condition(self, rel: R, source: mmpl.Rel, of_group: bool, lookup: StateLookup) -> str | None:
        return lookup.hiding_condition(rel, of_group)


P = TypeVar("P", mmpl.Best, mmpl.Over, mmpl.OverRows, mmpl.Session, mmpl.Silence)


class GroupwiseOperator(Operator[P]):
    """Processes the rows that agree on the columns `per` together, and stores rows."""

    def input_storage_reason(self, rel: P) -> str | None:
        return "reads its earlier rows"

    def partition_columns(self, rel: P, heading: Heading) -> list[ColumnNames] | None:
        return [(c,) for c in rel.per]


def input_cells(rel: mmpl.Rel, lookup: BottomRowLookup) -> BottomRow:
    """The bottom row of an operator whose columns are columns of its input."""
    (input_rel,) = trees.inputs_of(rel)
    source = lookup.bottom_row(input_rel)
    return {c: source[c] for c in lookup.heading_of(rel).columns}
