"""What the types say holds in every run: ranges, directions, what never changes, how masks move, seals, steps."""

import itertools
from collections.abc import Iterator
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from smile.algebra import mmpl
from smile.algebra.types import BOOL
from smile.analysis.domains import Domains
from smile.analysis.type_analysis import TypeAnalysis
from smile.knowledge.symbolic import Bound, Interval
from smile.knowledge.types import ColumnType, Direction, MaskType, RelationType
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import to_range
from smile.knowledge.values.latest import LatestValue
from smile.knowledge.values.nested import NestedRelation
from smile.knowledge.values.range import Range
from smile.reference.relation import Key, ReferenceRow, is_sealed
from tests.programs.reader import analyse, programs
from tests.reference.histories import Moment, allows, trace
from tests.reference.test_safety import explain
from tests.repeatable import scaled

pytestmark = pytest.mark.slow

PROGRAMS = programs()


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=scaled(6))
@given(st.integers(0, 2**64 - 1))
def test_types_hold(name: str, seed: int) -> None:
    program = PROGRAMS[name]
    analysis = analyse(program)
    moments = trace(program, Random(seed))
    broken = [f"{view}: {problem}" for view, problem in violations(program, analysis, moments)]
    assert not broken, explain(moments[-1], "\n".join(dict.fromkeys(broken)))


def violations(program: mmpl.Program, analysis: TypeAnalysis, moments: list[Moment]) -> Iterator[tuple[str, str]]:
    domains = Domains(program, analysis)
    for view in program.views:
        for problem in _of_domains(domains, view, moments):
            yield view.name, problem
        type_ = analysis.relations[view.name]
        keys = dict.fromkeys(key for m in moments for key in m.relations[view.name])
        rows = {key: [m.relations[view.name].get(key) for m in moments] for key in keys}
        problems = [*_of_counts(type_, view.name, moments), *_of_seals(type_, view.name, moments)]
        for key, course in rows.items():
            problems += [f"{key} {p}" for p in _of_row(type_, course, moments)]
        for problem in problems:
            yield view.name, problem


def _of_domains(domains: Domains, view: mmpl.ViewDef, moments: list[Moment]) -> Iterator[str]:
    """Every cell lies in the domain of its column, and in that of shown rows while its row is shown. What a permanently
    hidden row holds no longer matters."""
    every_row, shown_rows = domains.bottom_row(view.body), domains.shown_rows.bottom_row(view.body)
    columns = domains.analysis.relations[view.name].columns
    for moment in moments:
        for key, row in moment.relations[view.name].items():
            if row.mask.is_permanently_hidden:
                continue
            for name, cell in row.cells.items():
                if not isinstance(cell, LatestValue) and not allows(every_row[name], cell):
                    yield f"{key} {name}: {cell!r} is outside of its domain {every_row[name]!r}"
                if row.is_shown and not _is_possible(shown_rows[name], cell.now):
                    yield f"{key} {name}: {cell.now} is shown outside of its domain {shown_rows[name]!r}"
                range_ = columns[name].range
                if range_ is not None and cell.now is not None and not _is_in(range_, Fraction(cell.now)):
                    yield f"{key} {name}: {cell.now} is not in {range_}, though its row may be shown"


def _is_possible(domain: CellKnowledge, value: Any) -> bool:
    return isinstance(domain, NestedRelation) or to_range(domain).contains(value)


# ── one row through time ────────────────────────────────────────────────────────────────────────────────────────────


def _of_row(type_: RelationType, course: list[ReferenceRow | None], moments: list[Moment]) -> Iterator[str]:
    yield from _of_mask(type_.mask, [row is not None and row.is_shown for row in course])
    for row, moment in zip(course, moments, strict=True):
        if row is None:
            continue
        if not type_.mask.can_be_final_true and row.mask.is_permanently_shown and not moment.at_end:
            yield f"stays, though its type says that it may always vanish yet: {row}"
        steps = type_.steps.number
        if steps is not None and row.steps > steps:
            yield f"has taken {row.steps} steps, of {steps} at most"
    for name, column in type_.columns.items():
        seen = [row for row in course if row is not None and row.is_shown]
        for problem in [*_of_values(column, seen, name), *_of_moves(column, seen, name)]:
            yield f"{name}: {problem}"


def _of_mask(mask: MaskType, shown: list[bool]) -> Iterator[str]:
    flips = sum(a != b for a, b in zip([False, *shown], shown, strict=False))
    limit = mask.steps.number
    if limit is not None and flips > limit:
        yield f"flipped {flips} times, {limit} is the most: {shown}"
    fell = [i for i in range(1, len(shown)) if shown[i - 1] and not shown[i]]
    if fell and mask.never_falls:
        yield f"vanished, though it never falls: {shown}"
    if fell and mask.falls_for_good and any(shown[fell[0] :]):
        yield f"came back, though it falls for good: {shown}"


def _of_values(column: ColumnType, seen: list[ReferenceRow], name: str) -> Iterator[str]:
    for row in seen:
        cell = row.cells[name]
        value: Any = cell.now
        if value is None and not column.nullable:
            yield f"is NULL: {cell}"
        if value is not None and column.shown_range is not None and not _is_in(column.shown_range, Fraction(value)):
            yield f"{value} is not in {column.shown_range}"
        if value is not None and column.values is not None and value not in column.values:
            yield f"{value} is none of {column.values}"
        if not column.evolves and not cell.is_final:
            yield f"is not known at once: {cell}"
        if isinstance(cell, Range) and not cell.is_final and value is not None:
            if column.direction is Direction.UP and cell.lo != value and not cell.is_unknown:
                yield f"goes up, but stands at {value} of {cell.show()}"
            if column.direction is Direction.DOWN and cell.hi != value and not cell.is_unknown:
                yield f"goes down, but stands at {value} of {cell.show()}"


def _is_in(range_: Interval, value: Fraction) -> bool:
    return _is_at_most(range_.lo, value) and _is_at_most(-range_.hi, -value)


def _is_at_most(bound: Bound, value: Fraction) -> bool:
    return bound.number is None or bound.number <= value


def _of_moves(column: ColumnType, seen: list[ReferenceRow], name: str) -> Iterator[str]:
    values = [row.cells[name].now for row in seen]
    if column.mask is not None and column.evolves:
        yield from _of_mask(column.mask, [v is True for v in values])
    for a, b in itertools.pairwise(values):
        if a == b and (a is None) == (b is None):
            continue
        if not column.evolves:
            yield f"changed from {a} to {b}, though it does not evolve"
        elif a is None or b is None:
            if not column.null_evolves:
                yield f"changed from {a} to {b}, though whether it is NULL does not evolve"
        elif column.data != BOOL and not _is_along(column.direction, a, b):
            yield f"changed from {a} to {b}, though its direction is {column.direction.value}"


def _is_along(direction: Direction, a: Any, b: Any) -> bool:
    match direction:
        case Direction.UP:
            return bool(b >= a)
        case Direction.DOWN:
            return bool(b <= a)
        case _:
            return direction is Direction.EITHER


# ── whole relations ─────────────────────────────────────────────────────────────────────────────────────────────────


def _of_counts(type_: RelationType, view: str, moments: list[Moment]) -> Iterator[str]:
    most = type_.rows.number
    for moment in moments:
        count = sum(row.is_shown for row in moment.relations[view].values())
        if most is not None and count > most:
            yield f"{count} rows, {most} is the most"
        if type_.is_append_only:
            for key, row in moment.relations[view].items():
                if row.is_shown and not row.is_final:
                    yield f"{key} is not final, though this is a history: {row}"


def _of_seals(type_: RelationType, view: str, moments: list[Moment]) -> Iterator[str]:
    """A row that is sealed is final, and one that appears was not sealed before."""
    sealed: dict[Key, ReferenceRow] = {}
    for moment, following in zip(moments, [*moments[1:], moments[-1]], strict=True):
        columns = type_.heading.columns
        for key, row in moment.relations[view].items():
            if is_sealed(type_.seals, row.cells, columns, moment.horizons):
                if not row.is_final:
                    yield f"{key} is sealed but not final: {row} at {moment.horizons}"
                before = sealed.setdefault(key, row)
                if before.is_shown != row.is_shown:
                    yield f"{key} was sealed and changed"
        for key, row in following.relations[view].items():
            known = key in moment.relations[view]
            if row.is_shown and not known and is_sealed(type_.seals, row.cells, columns, moment.horizons):
                yield f"{key} appeared, though it was sealed at {moment.horizons}: {row}"
