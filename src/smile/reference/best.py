"""The k best rows of each group. The mask of a row depends on how many rows certainly or possibly precede it.

A row is permanently in when fewer than k rows could precede it, including rows that are still absent. It is permanently
out when k rows that stay certainly precede it.
"""

from collections.abc import Sequence
from dataclasses import replace

from smile.algebra import mmpl
from smile.knowledge.values.cells import to_range
from smile.knowledge.values.mask import Mask, all_of
from smile.knowledge.values.range import NEVER, ONLY, Range
from smile.reference.evaluation import Evaluation
from smile.reference.relation import Key, ReferenceRow, Relation, not_distinct_mask, sort_key

RankedRow = tuple[Key, ReferenceRow, list[Range]]


def best(ev: Evaluation, rel: mmpl.Best) -> Relation:
    ranked_rows = [
        (key, row, [to_range(ev.expression_knowledge(e, row.cells, rel.input)) for e, _ in rel.by])
        for key, row in ev.relation(rel.input).items()
    ]
    result = {}
    for ranked_row in ranked_rows:
        key, row, _ = ranked_row
        preceding = [_precedes_in_group(other, ranked_row, rel) for other in ranked_rows if other[0] != key]
        now = sum(m.is_shown for m in preceding) < rel.k
        possible = {True, False}
        if sum(m.is_permanently_shown for m in preceding) >= rel.k:
            possible = {False}
        elif sum(not m.is_permanently_hidden for m in preceding) < rel.k and ev.is_sealed(rel, row.cells):
            possible = {True}
        result[key] = replace(row, mask=all_of(row.mask, Mask.from_truths(possible, now)))
    return result


def _precedes_in_group(other: RankedRow, row: RankedRow, rel: mmpl.Best) -> Mask:
    """Whether another row is shown, is in the same group, and comes first."""
    same_group = all_of(*(not_distinct_mask(other[1].cells[c], row[1].cells[c]) for c in rel.per))
    return all_of(other[1].mask, same_group, _precedes(other, row, [descending for _, descending in rel.by]))


def _precedes(a: RankedRow, b: RankedRow, descending: Sequence[bool]) -> Mask:
    """Compares by the expressions in turn, then by key."""
    possible: set[bool | None] = set()
    now: bool | None = None
    for x, y, down in zip(a[2], b[2], descending, strict=True):
        orders = _possible_orders(y, x) if down else _possible_orders(x, y)
        current = _compare_keys(sort_key((x.now,)), sort_key((y.now,))) * (-1 if down else 1)
        now = (current < 0) if now is None and current else now
        possible |= {order < 0 for order in orders - {0}}
        if 0 not in orders:
            break
    else:
        possible.add(sort_key(a[0]) < sort_key(b[0]))
    return Mask.from_truths(possible, sort_key(a[0]) < sort_key(b[0]) if now is None else now)


def _compare_keys(a: Key, b: Key) -> int:
    return (a > b) - (a < b)


def _possible_orders(x: Range, y: Range) -> set[int]:
    """The possible orders of two values: -1, 0 or 1. NULL is greater than all values, as in PostgreSQL."""
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
