"""What joins of all kinds have in common: constraints and seals of a matching pair, columns that may have no match."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from smile.algebra import mmpl, trees
from smile.algebra.time_forms import MOMENT_TYPES, START, time_constraints
from smile.algebra.types import BOOL
from smile.knowledge.constraints import non_null_columns
from smile.knowledge.seals import Seal, TimeConstraints
from smile.knowledge.symbolic import INFINITE, ONE
from smile.knowledge.types import ColumnType, Direction, MaskDirection, MaskType, RelationType

SealsByStream = Mapping[str, Seal]


def match_constraints(rel: mmpl.Join, left: RelationType, right: RelationType) -> TimeConstraints:
    """The constraints between the rows of a matching pair. For NOT IN, NULL matches everything."""
    on = [
        (a, b) for a, b in rel.on if not rel.null_aware or not (left.columns[a].nullable or right.columns[b].nullable)
    ]
    constraints = (
        left.constraints.merge(right.constraints)
        .where_not_null(c for pair in on for c in pair)
        .with_constraints(equality_constraints(on, left, right))
    )
    if rel.when is None:
        return constraints
    constraints = constraints.where_not_null(non_null_columns(rel.when))
    columns = {**right.columns, **left.columns}
    types = {n: c.data for n, c in columns.items()}
    fixed = {START, *(n for n, c in columns.items() if not c.evolves)}
    return constraints.with_constraints(t for t in time_constraints(rel.when, types) if {t[0], t[1]} <= fixed)


def match_predicate(rel: mmpl.Join) -> mmpl.Expr:
    """What is true of every matching pair. Columns of one name are the same column of the pair."""
    equations = [mmpl.Call("=", (mmpl.ColumnRef(a), mmpl.ColumnRef(b))) for a, b in rel.on if a != b]
    conditions = [*equations, *([] if rel.when is None else [rel.when])]
    return trees.conjunction(conditions) if conditions else mmpl.Constant(True, BOOL)


def equality_constraints(
    on: Iterable[tuple[str, str]], left: RelationType, right: RelationType
) -> list[tuple[str, str, int]]:
    pairs = [(a, b) for a, b in on if a != b and left.columns[a].data in MOMENT_TYPES]
    fixed = [(a, b) for a, b in pairs if not left.columns[a].evolves and not right.columns[b].evolves]
    return [constraint for a, b in fixed for constraint in ((a, b, 0), (b, a, 0))]


def has_evolving_keys(on: Iterable[tuple[str, str]], left: RelationType, right: RelationType) -> bool:
    return any(left.columns[a].evolves or right.columns[b].evolves for a, b in on)


def express_seals(seals: SealsByStream, constraints: TimeConstraints, columns: Iterable[str]) -> SealsByStream:
    columns = list(columns)
    return {stream: constraints.express_seal(seal, columns) for stream, seal in seals.items()}


def latest_seals(a: SealsByStream, b: SealsByStream) -> SealsByStream:
    return {s: a[s].latest(b[s]) if s in a and s in b else a.get(s) or b[s] for s in {**a, **b}}


def as_nullable(column: ColumnType) -> ColumnType:
    domain = "once" if column.domain == "key" else column.domain
    return replace(
        column, domain=domain, steps=column.steps + ONE, direction=Direction.EITHER, evolves=True,
        nullable=True, null_evolves=True, mask=_undirected_mask(column),
    )  # fmt: skip


def as_evolving(column: ColumnType) -> ColumnType:
    domain = "range" if column.domain in ("key", "once") else column.domain
    direction = Direction.FIXED if column.data == BOOL else Direction.EITHER
    return replace(
        column,
        domain=domain,
        direction=direction,
        evolves=True,
        null_evolves=column.nullable,
        mask=_undirected_mask(column),
    )


def _undirected_mask(column: ColumnType) -> MaskType | None:
    """The mask of a Boolean column whose value may come from different rows over time."""
    return MaskType(MaskDirection.EITHER, INFINITE) if column.data == BOOL else None
