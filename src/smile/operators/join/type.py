"""The type of a join. A total relation joined on its whole key adds columns and never hides a row."""

from collections.abc import Mapping
from dataclasses import replace

from smile.algebra import mmpl, trees
from smile.algebra.heading import Heading, is_key_equated
from smile.algebra.types import BOOL
from smile.errors import error
from smile.knowledge.column_values import narrow_columns
from smile.knowledge.expression_types import (
    conjunction_mask,
    disjunction_mask,
    greatest_per_event,
    negation_mask,
    predicate_mask,
)
from smile.knowledge.functional_dependencies import FunctionalDependencies
from smile.knowledge.join_types import (
    SealsByStream,
    as_evolving,
    as_nullable,
    express_seals,
    has_evolving_keys,
    latest_seals,
    match_constraints,
    match_predicate,
)
from smile.knowledge.seals import Reach, TimeConstraints, columns_of_point, union_reach
from smile.knowledge.symbolic import ONE, UNBOUNDED
from smile.knowledge.types import ColumnType, Direction, MaskDirection, MaskType, RelationType


def join_type(rel: mmpl.Join, left: RelationType, right: RelationType, heading: Heading) -> RelationType:
    if rel.kind in ("semi", "anti", "match"):
        return _existence_join_type(rel, left, right, heading)
    left_always_matches, right_always_matches = (
        _has_match_for_every_row(rel, left, "left"),
        _has_match_for_every_row(rel, right, "right"),
    )
    if {
        "inner": True,
        "left": right_always_matches,
        "right": left_always_matches,
        "full": left_always_matches and right_always_matches,
    }[rel.kind]:
        return _inner_join_type(rel, left, right, heading)
    return _outer_join_type(rel, left, right, heading)


def _is_total(rel: mmpl.Join, side: RelationType, which: str) -> bool:
    return side.heading.total and is_key_equated(side.heading, _equated_columns(rel, which == "left"))


def _has_match_for_every_row(rel: mmpl.Join, side: RelationType, which: str) -> bool:
    """Whether every row of the other side has a match here, except rows that look up NULL."""
    on_key = set(_equated_columns(rel, which == "left")) <= set(side.heading.key)
    return _is_total(rel, side, which) and on_key and rel.when is None


def _inner_join_type(rel: mmpl.Join, left: RelationType, right: RelationType, heading: Heading) -> RelationType:
    left_is_total, right_is_total = _is_total(rel, left, "left"), _is_total(rel, right, "right")
    if left_is_total and right_is_total:
        mask = disjunction_mask([left.mask, right.mask])
    elif right_is_total:
        mask = left.mask
    elif left_is_total:
        mask = right.mask
    else:
        mask = conjunction_mask([left.mask, right.mask])
    keys_evolve = has_evolving_keys(rel.on, left, right)
    if keys_evolve:
        mask = MaskType(MaskDirection.EITHER, left.steps + right.steps)
    if rel.when is not None:
        mask = conjunction_mask([mask, predicate_mask(rel.when, {**right.columns, **left.columns})])
    defaults = _columns_with_default(rel, right, left, "right") if right_is_total else dict(right.columns)
    columns = {**defaults, **(_columns_with_default(rel, left, right, "left") if left_is_total else left.columns)}
    if keys_evolve and len(heading.key) == len(left.heading.key):
        # A different row may match later.
        columns |= {n: as_evolving(c) for n, c in defaults.items() if n not in left.columns}
    if rel.kind == "inner":
        columns = narrow_columns(columns, match_predicate(rel))
    build, probe = {"left": (right, left), "right": (left, right)}.get(rel.kind, (None, None))
    if build is not None and probe is not None:
        probe_columns = [probe.columns[c] for c in _equated_columns(rel, probe is left)]
        if any(c.nullable for c in probe_columns):
            # A row that looks up NULL is kept without a match.
            null_evolves = any(c.null_evolves for c in probe_columns)
            for n in build.columns.keys() - probe.columns.keys():
                columns[n] = replace(columns[n], nullable=True, null_evolves=columns[n].null_evolves or null_evolves)
    if rel.kind == "inner" and not (left_is_total or right_is_total or keys_evolve):
        # NULL matches nothing.
        columns |= {c: replace(columns[c], nullable=False) for pair in rel.on for c in pair}
    if rel.kind == "full" and any(left.columns[a].nullable or right.columns[b].nullable for a, b in rel.on):
        # The group whose key is NULL is kept, whichever side has it. Fixed columns of a default row are its key.
        columns |= {n: replace(c, nullable=True) for n, c in columns.items() if c.domain in ("key", "once")}
    constraints = match_constraints(rel, left, right)
    fixed_columns = [c for c in heading.columns if not columns[c].evolves]
    seals = latest_seals(
        express_seals(left.seals, constraints, fixed_columns), express_seals(right.seals, constraints, fixed_columns)
    )
    if left_is_total:
        rows = right.rows + left.rows if right_is_total else right.rows
        events = right.events + (left.events if right_is_total else right.rows * left.steps)
    elif is_key_equated(right.heading, (b for _, b in rel.on)):
        is_one_to_one = is_key_equated(left.heading, (a for a, _ in rel.on))
        rows, events = left.rows, left.events + (right.events if is_one_to_one else left.rows * right.steps)
    else:
        rows = left.rows * right.rows
        events = left.events * right.rows + left.rows * right.events
    reach = union_reach(
        constraints.extend_reach(left.reach, fixed_columns), constraints.extend_reach(right.reach, fixed_columns)
    )
    steps = left.steps + right.steps
    return RelationType(
        heading, _with_key_domains(columns, heading), mask, rows, steps, events, seals,
        constraints.project(fixed_columns), reach, _can_become_absent(rel, left, right),
        _dependencies_of_pairs(rel, left, right, fixed_columns),
        shares_ticks=_side_with_tick(rel, left, right).shares_ticks,
        has_early_rows=left.has_early_rows or right.has_early_rows,
    )  # fmt: skip


def _dependencies_of_pairs(
    rel: mmpl.Join, left: RelationType, right: RelationType, columns: list[str]
) -> FunctionalDependencies:
    """In a pair, the columns of each side determine each other as before, and equated columns are equal. This does not
    hold for the default rows of a total relation."""
    if rel.kind != "inner" or left.heading.total or right.heading.total:
        return FunctionalDependencies()
    dependencies = left.dependencies.merge(right.dependencies)
    for a, b in rel.on:
        if not left.columns[a].evolves and not right.columns[b].evolves:
            dependencies = dependencies.add([a], [b]).add([b], [a])
    nullable = {*left.nullable_columns, *right.nullable_columns} - {c for pair in rel.on for c in pair}
    return dependencies.project(columns, nullable)


def _outer_join_type(rel: mmpl.Join, left: RelationType, right: RelationType, heading: Heading) -> RelationType:
    """Rows of a preserved side without a match have NULLs, which may later become values."""
    preserved = {"left": (left,), "right": (right,), "full": (left, right)}[rel.kind]
    columns = dict(
        _columns_with_default(rel, right, left, "right") if _is_total(rel, right, "right") else right.columns
    )
    columns |= _columns_with_default(rel, left, right, "left") if _is_total(rel, left, "left") else left.columns
    if len(preserved) == 1:
        matched_columns = narrow_columns(columns, match_predicate(rel))
        columns |= {n: c for n, c in matched_columns.items() if n not in preserved[0].columns}
    for name in columns:
        if name in left.columns and name in right.columns:
            columns[name] = _shared_column_type(rel, name, left, right, heading)
        elif not any(name in side.columns for side in preserved if len(preserved) == 1):
            columns[name] = as_nullable(columns[name])
    constraints = match_constraints(rel, left, right)
    fixed_columns = [c for c in heading.columns if not columns[c].evolves]
    seals: SealsByStream = {}
    for side, other in ((left, right), (right, left)):
        if any(side is p for p in preserved):
            fixed = [c for c in side.columns if c in fixed_columns]
            # The constraints of a pair do not hold in a row without a match: its own seals follow only from the
            # constraints of its side.
            own_seals = express_seals(side.seals, side.constraints, fixed)
            other_seals = express_seals(other.seals, constraints, fixed)
            seals = latest_seals(seals, latest_seals(own_seals, other_seals))
    has_one_row_per_preserved = len(heading.key) == len(preserved[0].heading.key) and rel.kind != "full"
    if has_one_row_per_preserved:
        mask, rows = preserved[0].mask, preserved[0].rows
    else:
        mask = MaskType(MaskDirection.EITHER, left.events + right.events + ONE)
        rows = left.rows * right.rows + left.rows + right.rows
    events = left.events * right.rows + left.rows * right.events + left.events + right.events
    reach = union_reach(
        _outer_reach(left, constraints, fixed_columns, preserved),
        _outer_reach(right, constraints, fixed_columns, preserved),
    )
    nulls = {c: c for c in fixed_columns if columns[c].nullable}
    return RelationType(
        heading, _with_key_domains(columns, heading), mask, rows, left.steps + right.events, events, seals,
        _constraints_of_all_rows(constraints.project(fixed_columns), preserved, nulls), reach,
        _can_become_absent(rel, left, right),
        shares_ticks=_side_with_tick(rel, left, right).shares_ticks,
        has_early_rows=left.has_early_rows or right.has_early_rows,
    )  # fmt: skip


def _constraints_of_all_rows(
    constraints: TimeConstraints, preserved: tuple[RelationType, ...], nulls: Mapping[str, str]
) -> TimeConstraints:
    """The constraints that also hold in rows without a match, as far as these have both columns."""
    distances = dict(constraints.distance_max)
    for pair in constraints.distance_max:
        for side in preserved:
            columns = columns_of_point(pair[0]) | columns_of_point(pair[1])
            if columns <= side.columns.keys() and pair in distances:
                own_distance = side.constraints.distance_max.get(pair)
                if own_distance is None:
                    del distances[pair]
                else:
                    distances[pair] = max(distances[pair], own_distance)
    return TimeConstraints(distances, nulls)


def _outer_reach(
    side: RelationType, constraints: TimeConstraints, columns: list[str], preserved: tuple[RelationType, ...]
) -> Reach:
    reach = constraints.extend_reach(side.reach, columns)
    if not any(side is p for p in preserved):
        return reach
    own_reach = side.constraints.extend_reach(side.reach, [c for c in columns if c in side.columns])
    return {
        s: {c: d for c, d in reach_of_stream.items() if c not in side.columns} | dict(own_reach[s])
        for s, reach_of_stream in reach.items()
    }


def _shared_column_type(
    rel: mmpl.Join, name: str, left: RelationType, right: RelationType, heading: Heading
) -> ColumnType:
    """A column that both sides share has the value of the side whose row is present."""
    a, b = left.columns[name], right.columns[name]
    column_types = {"left": [a], "right": [b], "full": [a, b]}[rel.kind]
    if name in heading.key and any(c.evolves for c in column_types):
        raise error("E040", f"{name} identifies rows without a match, and evolves", rel.span)
    if len(column_types) == 1:
        return column_types[0]
    union_column = replace(a.hull(b), nullable=a.nullable or b.nullable, per_event=greatest_per_event([a, b]))
    return as_evolving(union_column) if a.evolves or b.evolves else union_column


def _existence_join_type(rel: mmpl.Join, left: RelationType, right: RelationType, heading: Heading) -> RelationType:
    """Left rows by whether a match exists. A match that stays is final; that there is none is final once the row is
    sealed."""
    fixed = [c for c, t in left.columns.items() if not t.evolves]
    constraints = match_constraints(rel, left, right)
    seals = latest_seals(left.seals, express_seals(right.seals, constraints, fixed))
    reach = union_reach(left.reach, constraints.extend_reach(right.reach, fixed))
    condition_columns = trees.columns_in(rel.when) if rel.when is not None else frozenset()
    is_evolving = has_evolving_keys(rel.on, left, right) or any(
        side.columns[c].evolves for c in condition_columns for side in (left, right) if c in side.columns
    )
    is_match_permanent = right.never_leaves and not is_evolving
    exists = (
        MaskType(MaskDirection.RISES, ONE) if is_match_permanent else MaskType(MaskDirection.EITHER, right.events + ONE)
    )
    can_be_sealed = not any(s.is_never for s in seals.values())
    steps, early = left.steps + right.events, left.has_early_rows or right.has_early_rows
    if rel.kind == "match":
        match_column_type = ColumnType(
            BOOL, "mask", None, exists.steps, Direction.FIXED, True, rel.null_aware, rel.null_aware, exists
        )
        assert rel.match_column is not None
        columns = {**left.columns, rel.match_column: match_column_type}
        return replace(
            left, heading=heading, columns=columns, seals=seals, steps=steps, reach=reach, has_early_rows=early
        )
    # Without a seal, only a row that looks up NULL, or a key whose row is known, can be sure to have no match.
    absence_can_be_final = any(left.columns[a].nullable for a, _ in rel.on) or is_key_equated(
        right.heading, (b for _, b in rel.on)
    )
    test = (
        exists
        if rel.kind == "semi"
        else replace(negation_mask(exists), can_be_final_true=can_be_sealed or absence_can_be_final)
    )
    mask = conjunction_mask([left.mask, test])
    columns = dict(left.columns)
    if rel.kind == "semi":
        matched_columns = narrow_columns({**right.columns, **left.columns}, match_predicate(rel))
        columns = {n: matched_columns[n] for n in left.columns}
    return replace(
        left, heading=heading, columns=columns, mask=mask, seals=seals, steps=steps, reach=reach, has_early_rows=early
    )


# ── helpers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _side_with_tick(rel: mmpl.Join, left: RelationType, right: RelationType) -> RelationType:
    """The side whose tick the joined rows have, if they have one."""
    return right if rel.kind == "right" else left


def _can_become_absent(rel: mmpl.Join, left: RelationType, right: RelationType) -> bool:
    """Whether rows can become absent. A pair that can no longer match is the same as one that never matched."""
    column_types = {**right.columns, **left.columns}
    condition_columns = trees.columns_in(rel.when) if rel.when is not None else frozenset()
    return left.can_become_absent or right.can_become_absent or any(column_types[c].evolves for c in condition_columns)


def _columns_with_default(rel: mmpl.Join, side: RelationType, other: RelationType, which: str) -> dict[str, ColumnType]:
    """The columns of a total side. Its default row has sum and count 0; its other aggregates are unknown, and may stay
    NULL. Its key is the one that the other side looks up."""
    probe_columns = {b: a for a, b in rel.on} if which == "right" else dict(rel.on)
    key = {
        n: _key_with_default(side.columns[n], other.columns[probe_columns[n]] if n in probe_columns else None)
        for n in side.heading.key
    }
    has_wider_key = any(column != side.columns[n] for n, column in key.items())
    return {n: key[n] if n in key else _column_with_default(c, has_wider_key) for n, c in side.columns.items()}


def _key_with_default(column: ColumnType, probe_column: ColumnType | None) -> ColumnType:
    return column if probe_column is None else column.hull(probe_column)


def _column_with_default(column: ColumnType, has_wider_key: bool) -> ColumnType:
    default_column = column if column.has_default else replace(column, nullable=True, null_evolves=True)
    if has_wider_key and column.follows_group_key:
        # Its range and its direction hold only for keys of the range that the key had, and so does that it cannot
        # overflow.
        direction = Direction.EITHER if column.evolves else column.direction
        default_column = replace(
            default_column.with_range(None if column.range is None else UNBOUNDED),
            direction=Direction.FIXED if column.data == BOOL else direction,
            mask=MaskType(MaskDirection.EITHER, column.steps) if column.data == BOOL else None,
            null_evolves=column.evolves or column.null_evolves,
            per_event=None,
        )
    else:
        default_column = default_column.with_range(column.range)
    if column.follows_group_key:
        default_column = replace(default_column, nullable=True)
    # A column that the only row of its group fixes has no value in the default row yet.
    return default_column if column.evolves else as_evolving(default_column)


def _equated_columns(rel: mmpl.Join, of_left: bool) -> list[str]:
    return [a if of_left else b for a, b in rel.on]


def _with_key_domains(columns: Mapping[str, ColumnType], heading: Heading) -> dict[str, ColumnType]:
    """The columns of the heading in its order, with the domain of each by whether it is still part of the key."""
    result = {}
    for name in heading.columns:
        column = columns[name]
        if name in heading.key:
            column = replace(column, domain="key", evolves=False, direction=Direction.FIXED)
        elif column.domain == "key":
            column = replace(column, domain="once")
        result[name] = column
    return result
