"""The types of joins. A total relation joined on its whole key adds columns and never hides a row."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from smile.algebra import mmpl, trees
from smile.algebra.heading import Heading, whole_key_equated
from smile.algebra.types import BOOL, TIME, TIMESTAMP
from smile.errors import error
from smile.knowledge.expression_types import both, either, negated, predicate_mask
from smile.knowledge.ranges import columns_there, ties_in
from smile.knowledge.seals import START, Reach, Seal, Ties, furthest
from smile.knowledge.symbolic import INFINITE, ONE
from smile.knowledge.types import ColumnType, Course, Direction, MaskType, RelationType

Seals = Mapping[str, Seal]


def join_type(rel: mmpl.Join, left: RelationType, right: RelationType, heading: Heading) -> RelationType:
    if rel.kind in ("semi", "anti", "match"):
        return _tested(rel, left, right, heading)
    left_met, right_met = _is_met(rel, left, "left"), _is_met(rel, right, "right")
    if {"inner": True, "left": right_met, "right": left_met, "full": left_met and right_met}[rel.kind]:
        return _inner(rel, left, right, heading)
    return _outer(rel, left, right, heading)


def _is_total(rel: mmpl.Join, side: RelationType, which: str) -> bool:
    return side.heading.total and whole_key_equated(side.heading, _on(rel, which == "left"))


def _is_met(rel: mmpl.Join, side: RelationType, which: str) -> bool:
    """Whether every row of the other side has a match here, unless it asks for NULL."""
    on_key = set(_on(rel, which == "left")) <= set(side.heading.key)
    return _is_total(rel, side, which) and on_key and rel.when is None


def _inner(rel: mmpl.Join, left: RelationType, right: RelationType, heading: Heading) -> RelationType:
    left_total, right_total = _is_total(rel, left, "left"), _is_total(rel, right, "right")
    if left_total and right_total:
        mask = either([left.mask, right.mask])
    elif right_total:
        mask = left.mask
    elif left_total:
        mask = right.mask
    else:
        mask = both([left.mask, right.mask])
    moving = _moving(rel.on, left, right)
    if moving:
        mask = MaskType(Course.EITHER, left.steps + right.steps)
    if rel.when is not None:
        mask = both([mask, predicate_mask(rel.when, {**right.columns, **left.columns})])
    defaults = _with_default(rel, right, left, "right") if right_total else dict(right.columns)
    columns = {**defaults, **(_with_default(rel, left, right, "left") if left_total else left.columns)}
    if moving and len(heading.key) == len(left.heading.key):
        # The one row that matches may be another one later.
        columns |= {n: _may_change(c) for n, c in defaults.items() if n not in left.columns}
    preserved, asked = {"left": (right, left), "right": (left, right)}.get(rel.kind, (None, None))
    if preserved is not None and asked is not None:
        wanted = [asked.columns[c] for c in _on(rel, asked is left)]
        if any(c.nullable for c in wanted):
            # A row that asks for NULL is preserved without a match.
            moves = any(c.null_evolves for c in wanted)
            for n in preserved.columns.keys() - asked.columns.keys():
                columns[n] = replace(columns[n], nullable=True, null_evolves=columns[n].null_evolves or moves)
    ties = match_ties(rel, left, right)
    kept = [c for c in heading.columns if not columns[c].evolves]
    seals = _latest(_express(left.seals, ties, kept), _express(right.seals, ties, kept))
    if left_total:
        rows = right.rows + left.rows if right_total else right.rows
        events = right.events + (left.events if right_total else right.rows * left.steps)
    elif whole_key_equated(right.heading, (b for _, b in rel.on)):
        once = whole_key_equated(left.heading, (a for a, _ in rel.on))
        rows, events = left.rows, left.events + (right.events if once else left.rows * right.steps)
    else:
        rows = left.rows * right.rows
        events = left.events * right.rows + left.rows * right.events
    reach = furthest(ties.extend(left.reach, kept), ties.extend(right.reach, kept))
    steps = left.steps + right.steps
    return RelationType(
        heading, _as_keys(columns, heading), mask, rows, steps, events, seals, ties.of(kept), reach,
        _forgets(rel, left, right),
    )  # fmt: skip


def _outer(rel: mmpl.Join, left: RelationType, right: RelationType, heading: Heading) -> RelationType:
    """Rows of the preserved side without a match have NULLs, which may yet become values."""
    preserved = {"left": (left,), "right": (right,), "full": (left, right)}[rel.kind]
    columns = dict(_with_default(rel, right, left, "right") if _is_total(rel, right, "right") else right.columns)
    columns |= _with_default(rel, left, right, "left") if _is_total(rel, left, "left") else left.columns
    for name in columns:
        if name in left.columns and name in right.columns:
            columns[name] = _shared(rel, name, left, right, heading)
        elif not any(name in side.columns for side in preserved if len(preserved) == 1):
            columns[name] = _may_be_null(columns[name])
    ties = match_ties(rel, left, right)
    kept = [c for c in heading.columns if not columns[c].evolves]
    seals: Seals = {}
    for side, other in ((left, right), (right, left)):
        if any(side is p for p in preserved):
            fixed = [c for c in side.columns if c in kept]
            # What ties a pair does not tie a row without a match: its own seals follow from its own ties alone.
            own, others = _express(side.seals, side.ties, fixed), _express(other.seals, ties, fixed)
            seals = _latest(seals, _latest(own, others))
    one_row = len(heading.key) == len(preserved[0].heading.key) and rel.kind != "full"
    if one_row:
        mask, rows = preserved[0].mask, preserved[0].rows
    else:
        mask = MaskType(Course.EITHER, left.events + right.events + ONE)
        rows = left.rows * right.rows + left.rows + right.rows
    events = left.events * right.rows + left.rows * right.events + left.events + right.events
    reach = furthest(_reach(left, ties, kept, preserved), _reach(right, ties, kept, preserved))
    steps = left.steps + right.events
    return RelationType(
        heading,
        _as_keys(columns, heading),
        mask,
        rows,
        steps,
        events,
        seals,
        _in_every_row(ties.of(kept), preserved, {c: c for c in kept if columns[c].nullable}),
        reach,
        _forgets(rel, left, right),
    )


def _in_every_row(ties: Ties, preserved: tuple[RelationType, ...], nulls: Mapping[str, str]) -> Ties:
    """Those that hold in rows without a match too, as far as both columns are there."""
    found = dict(ties.at_most)
    for pair in ties.at_most:
        for side in preserved:
            if all(c == START or c in side.columns for c in pair) and pair in found:
                own = side.ties.at_most.get(pair)
                if own is None:
                    del found[pair]
                else:
                    found[pair] = max(found[pair], own)
    return Ties(found, nulls)


def _reach(side: RelationType, ties: Ties, kept: list[str], preserved: tuple[RelationType, ...]) -> Reach:
    reach = ties.extend(side.reach, kept)
    if not any(side is p for p in preserved):
        return reach
    own = side.ties.extend(side.reach, [c for c in kept if c in side.columns])
    return {s: {c: d for c, d in known.items() if c not in side.columns} | dict(own[s]) for s, known in reach.items()}


def _shared(rel: mmpl.Join, name: str, left: RelationType, right: RelationType, heading: Heading) -> ColumnType:
    """A column that is equated under one name has the value of whichever row is there."""
    a, b = left.columns[name], right.columns[name]
    own = {"left": [a], "right": [b], "full": [a, b]}[rel.kind]
    if name in heading.key and any(c.evolves for c in own):
        raise error("E040", f"{name} identifies rows without a match, and evolves", rel.span)
    if len(own) == 1:
        return own[0]
    range_ = a.range.hull(b.range) if a.range is not None and b.range is not None else None
    either = replace(a, range=range_, nullable=a.nullable or b.nullable)
    return _may_change(either) if a.evolves or b.evolves else either


def _tested(rel: mmpl.Join, left: RelationType, right: RelationType, heading: Heading) -> RelationType:
    """Left rows by whether a match exists. A match that stays decides for good; absence does once the row is sealed."""
    fixed = [c for c, t in left.columns.items() if not t.evolves]
    ties = match_ties(rel, left, right)
    seals = _latest(left.seals, _express(right.seals, ties, fixed))
    reach = furthest(left.reach, ties.extend(right.reach, fixed))
    named = trees.columns_in(rel.when) if rel.when is not None else frozenset()
    moving = _moving(rel.on, left, right) or any(
        side.columns[c].evolves for c in named for side in (left, right) if c in side.columns
    )
    stays = right.never_leaves and not moving
    exists = MaskType(Course.RISES, ONE) if stays else MaskType(Course.EITHER, right.events + ONE)
    sealed = not any(s.is_never for s in seals.values())
    steps = left.steps + right.events
    if rel.kind == "match":
        mark = ColumnType(
            BOOL, "mask", None, exists.steps, Direction.FIXED, True, rel.null_aware, rel.null_aware, exists
        )
        assert rel.mark is not None
        columns = {**left.columns, rel.mark: mark}
        return replace(left, heading=heading, columns=columns, seals=seals, steps=steps, reach=reach)
    # Without a seal, absence is sure only of a row that asks for NULL, or for a key whose row is known.
    asked = any(left.columns[a].nullable for a, _ in rel.on) or whole_key_equated(right.heading, (b for _, b in rel.on))
    test = exists if rel.kind == "semi" else replace(negated(exists), final_true=sealed or asked)
    mask = both([left.mask, test])
    return replace(left, heading=heading, mask=mask, seals=seals, steps=steps, reach=reach)


def asof_type(rel: mmpl.Asof, left: RelationType, right: RelationType, heading: Heading) -> RelationType:
    """The match may change until the right side is known up to the left tick."""
    columns = dict(left.columns)
    for name in heading.columns:
        if name not in columns:
            domain = "range" if right.columns[name].evolves or not right.never_leaves else "latest"
            columns[name] = replace(
                _may_be_null(right.columns[name]),
                domain=domain,
                nullable=right.columns[name].nullable or rel.kind == "left",
            )
    ties = left.ties.and_(right.ties).never_null(c for pair in (*rel.on, rel.at) for c in pair)
    ties = ties.with_(_equal(rel.on, left, right)).with_([(rel.at[1], rel.at[0], 0)])
    fixed = [c for c, t in left.columns.items() if not t.evolves]
    seals = _latest(left.seals, _express(right.seals, ties, fixed))
    moving = _moving((*rel.on, rel.at), left, right)
    if moving:
        columns |= {n: _may_change(c) for n, c in columns.items() if n not in left.columns}
    stays = right.never_leaves and not moving
    found = MaskType(Course.RISES, ONE) if stays else MaskType(Course.EITHER, left.steps + right.events)
    mask = both([left.mask, found]) if rel.kind == "inner" else left.mask
    # A right row stays the match of every later left row until another replaces it: no bound.
    reach = furthest(left.reach, {stream: {} for stream in right.reach})
    return replace(
        left, heading=heading, columns=columns, mask=mask, seals=seals,
        steps=left.steps + right.events, events=left.events + left.rows * right.events, reach=reach,
    )  # fmt: skip


# ── parts ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _forgets(rel: mmpl.Join, left: RelationType, right: RelationType) -> bool:
    """A pair that cannot match any more is one of all those that never did."""
    both = {**right.columns, **left.columns}
    tested = trees.columns_in(rel.when) if rel.when is not None else frozenset()
    return left.forgets or right.forgets or any(both[c].evolves for c in tested)


def _moving(on: Iterable[tuple[str, str]], left: RelationType, right: RelationType) -> bool:
    return any(left.columns[a].evolves or right.columns[b].evolves for a, b in on)


def _with_default(rel: mmpl.Join, side: RelationType, other: RelationType, which: str) -> dict[str, ColumnType]:
    """A group nobody has heard of has sum and count 0; its other aggregates are unknown, and may stay NULL. Its key is
    whatever the other side asks for."""
    asked = {b: a for a, b in rel.on} if which == "right" else dict(rel.on)
    return {
        n: _of_default(n, c, side, other.columns[asked[n]] if n in asked else None) for n, c in side.columns.items()
    }


def _of_default(name: str, column: ColumnType, side: RelationType, asked: ColumnType | None) -> ColumnType:
    if name in side.heading.key:
        if asked is None or asked.range is None or column.range is None:
            return column
        return replace(column, range=column.range.hull(asked.range))
    known = column if column.by_default else replace(column, nullable=True, null_evolves=True)
    # What was fixed by the one row of its group is not there yet in the default row.
    return known if column.evolves else _may_change(known)


def _may_be_null(column: ColumnType) -> ColumnType:
    domain = "once" if column.domain == "key" else column.domain
    return replace(
        column, domain=domain, steps=column.steps + ONE, direction=Direction.EITHER, evolves=True,
        nullable=True, null_evolves=True, mask=_any_course(column),
    )  # fmt: skip


def _any_course(column: ColumnType) -> MaskType | None:
    """A Boolean that is now one row's, now another's."""
    return MaskType(Course.EITHER, INFINITE) if column.data == BOOL else None


def _may_change(column: ColumnType) -> ColumnType:
    domain = "range" if column.domain in ("key", "once") else column.domain
    direction = Direction.FIXED if column.data == BOOL else Direction.EITHER
    return replace(
        column, domain=domain, direction=direction, evolves=True, null_evolves=column.nullable, mask=_any_course(column)
    )


def _on(rel: mmpl.Join, left: bool) -> list[str]:
    return [a if left else b for a, b in rel.on]


def _as_keys(columns: Mapping[str, ColumnType], heading: Heading) -> dict[str, ColumnType]:
    """The heading's columns in its order; what is no longer key is a column like others."""
    result = {}
    for name in heading.columns:
        column = columns[name]
        if name in heading.key:
            column = replace(column, domain="key", evolves=False, direction=Direction.FIXED)
        elif column.domain == "key":
            column = replace(column, domain="once")
        result[name] = column
    return result


def _equal(on: Iterable[tuple[str, str]], left: RelationType, right: RelationType) -> list[tuple[str, str, int]]:
    pairs = [(a, b) for a, b in on if a != b and left.columns[a].data in (TIME, TIMESTAMP)]
    fixed = [(a, b) for a, b in pairs if not left.columns[a].evolves and not right.columns[b].evolves]
    return [tie for a, b in fixed for tie in ((a, b, 0), (b, a, 0))]


def match_ties(rel: mmpl.Join, left: RelationType, right: RelationType) -> Ties:
    """What ties the rows of a pair that matches. NOT IN takes NULL for a match of everything."""
    on = [
        (a, b) for a, b in rel.on if not rel.null_aware or not (left.columns[a].nullable or right.columns[b].nullable)
    ]
    ties = left.ties.and_(right.ties).never_null(c for pair in on for c in pair).with_(_equal(on, left, right))
    if rel.when is None:
        return ties
    ties = ties.never_null(columns_there(rel.when))
    columns = {**right.columns, **left.columns}
    types = {n: c.data for n, c in columns.items()}
    fixed = {"", *(n for n, c in columns.items() if not c.evolves)}
    return ties.with_(t for t in ties_in(rel.when, types) if {t[0], t[1]} <= fixed)


def _express(seals: Seals, ties: Ties, columns: Iterable[str]) -> Seals:
    columns = list(columns)
    return {stream: ties.express(seal, columns) for stream, seal in seals.items()}


def _latest(a: Seals, b: Seals) -> Seals:
    return {s: a[s].latest(b[s]) if s in a and s in b else a.get(s) or b[s] for s in {**a, **b}}
