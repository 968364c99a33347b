"""The papers' figures of monotonic domains, generated from the domains themselves. Edges go up, and edges that others
imply are left out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from smile.algebra.types import INT
from smile.knowledge.values.aggregates import Member, aggregate
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.mask import T
from smile.knowledge.values.once import OnceValue
from smile.knowledge.values.range import Range

P = TypeVar("P", bound=CellKnowledge)


@dataclass(frozen=True)
class Figure:
    labels: tuple[str, ...]
    edges: frozenset[tuple[str, str]]


def hasse_edges(points: Sequence[P]) -> list[tuple[P, P]]:
    """Pairs of points where the first evolves to the second and no other point is in between."""
    above = {i: [j for j, q in enumerate(points) if j != i and p.evolves_to(q)] for i, p in enumerate(points)}
    return [
        (points[i], points[j])
        for i, upper in above.items()
        for j in upper
        if not any(j in above[k] for k in upper if k != j)
    ]


def _figure(points: Sequence[P], label: Callable[[P], str]) -> Figure:
    return Figure(tuple(map(label, points)), frozenset((label(p), label(q)) for p, q in hasse_edges(points)))


def once_figure(lo: int, hi: int) -> Figure:
    """A column of a base relation."""
    return _figure(
        [OnceValue.bottom(lo, hi), OnceValue.silence(), *map(OnceValue.exactly, range(lo, hi + 1))], OnceValue.show
    )


def max_figure(lo: int, hi: int) -> Figure:
    """MAX of such a column: every state of knowledge of a group, by its greatest member and whether it is sealed."""
    groups = [[], *([Member(T, Range.exactly(v))] for v in range(lo, hi + 1))]
    points: list[Range] = []
    for group in groups:
        for sealed in (False, True):
            point = aggregate("max", group, sealed, lo, hi, INT)
            assert isinstance(point, Range)
            if point not in points:
                points.append(point)

    def label(p: Range) -> str:
        """The upper end never moves, so it is not shown. A group without members is silence."""
        if p.is_final:
            return "S" if p.now is None else p.show()
        return "?" if p.is_unknown else f"≥{p.lo}"

    return _figure(points, label)


def count_figure(rows: int) -> Figure:
    """COUNT of a known number of rows: between those that are certain and those that are possible."""
    points = [Range.between(a, b) for a in range(rows + 1) for b in range(a, rows + 1)]
    return _figure(points, lambda p: f"[{p.lo}..{p.hi}]")


def mask_figure(initial: bool, steps: int, finals: frozenset[bool]) -> Figure:
    """A mask that flips at most `steps` times and ends as one of `finals`. After its last step it is final. A letter
    that occurs again is followed by the number of flips."""

    def label(value: bool, flips: int) -> str:
        return ("t" if value else "f") + (str(flips) if flips > 1 else "")

    edges = set()
    value = initial
    for flips in range(steps):
        if value in finals:
            edges.add((label(value, flips), "T" if value else "F"))
        if flips + 1 < steps:
            edges.add((label(value, flips), label(not value, flips + 1)))
        elif (not value) in finals:
            edges.add((label(value, flips), "F" if value else "T"))
        value = not value
    return Figure(tuple(sorted({name for edge in edges for name in edge})), frozenset(edges))
