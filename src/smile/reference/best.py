"""The k best rows of each group: the mask of a row counts those that precede it, surely or perhaps.

A row is in for good when fewer than k rows could precede it, rows nobody has heard of included; it is out for good when
k rows that stay surely do.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from smile.algebra import mmpl
from smile.knowledge.cells import range_of
from smile.knowledge.mask import Mask, all_of
from smile.knowledge.range import NEVER, ONLY, Range
from smile.reference.relation import Key, Relation, Row, orderable, same

if TYPE_CHECKING:
    from smile.reference.evaluate import Evaluation

Place = tuple[Key, Row, list[Range]]


def best(ev: "Evaluation", rel: mmpl.Best) -> Relation:
    places = [
        (key, row, [range_of(ev.know(e, row.cells, rel.input)) for e, _ in rel.by])
        for key, row in ev.of(rel.input).items()
    ]
    result = {}
    for place in places:
        key, row, _ = place
        ahead = [_ahead(other, place, rel) for other in places if other[0] != key]
        now = sum(m.shown for m in ahead) < rel.k
        possible = {True, False}
        if sum(m.stays for m in ahead) >= rel.k:
            possible = {False}
        elif sum(not m.gone for m in ahead) < rel.k and ev.is_sealed(rel, row.cells):
            possible = {True}
        result[key] = replace(row, mask=all_of(row.mask, Mask.of(possible, now)))
    return result


def _ahead(other: Place, place: Place, rel: mmpl.Best) -> Mask:
    """Whether another row is there, in the same group, and comes first."""
    grouped = all_of(*(same(other[1].cells[c], place[1].cells[c]) for c in rel.per))
    return all_of(other[1].mask, grouped, _precedes(other, place, [descending for _, descending in rel.by]))


def _precedes(a: Place, b: Place, descending: Sequence[bool]) -> Mask:
    """By the expressions in turn, then by key."""
    possible: set[bool | None] = set()
    now: bool | None = None
    for x, y, down in zip(a[2], b[2], descending, strict=True):
        orders = _orders(y, x) if down else _orders(x, y)
        current = _order(orderable((x.now,)), orderable((y.now,))) * (-1 if down else 1)
        now = (current < 0) if now is None and current else now
        possible |= {order < 0 for order in orders - {0}}
        if 0 not in orders:
            break
    else:
        possible.add(orderable(a[0]) < orderable(b[0]))
    return Mask.of(possible, orderable(a[0]) < orderable(b[0]) if now is None else now)


def _order(a: Key, b: Key) -> int:
    return (a > b) - (a < b)


def _orders(x: Range, y: Range) -> set[int]:
    """How two values may turn out to be ordered: -1, 0 or 1. NULL is the greatest of all, as in PostgreSQL."""
    orders: set[int] = set()
    if x.nulls is not NEVER:
        orders |= {0} if y.nulls is not NEVER else set()
        orders |= {1} if y.nulls is not ONLY else set()
    if x.nulls is not ONLY:
        orders |= {-1} if y.nulls is not NEVER else set()
        if y.nulls is not ONLY:
            below = x.lo is None or y.hi is None or x.lo < y.hi
            above = x.hi is None or y.lo is None or x.hi > y.lo
            meet = (x.lo is None or y.hi is None or x.lo <= y.hi) and (x.hi is None or y.lo is None or x.hi >= y.lo)
            orders |= {o for o, may in ((-1, below), (0, meet), (1, above)) if may}
    return orders
