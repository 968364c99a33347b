"""The value at each rank is the one of a sorted list, however values come and go."""

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from smile.algebra.types import FLOAT, INT, INT_MAX, INT_MIN
from smile.columns import values as v
from smile.columns.values import ValueColumn
from smile.kernels.aggregates import ordered_multiset
from smile.kernels.aggregates.accumulator import GroupContext
from smile.kernels.aggregates.ordered_multiset import OrderedMultiset, decode_order, order_codes
from smile.kernels.over.windows import reject_member_lookup
from smile.state.table import StateTable

GROUPS = ["a", None, "b"]


def context(hashes: list[int], tables: dict[str, StateTable]) -> GroupContext:
    key = {"k": v.from_arrow_text(pa.array(GROUPS, pa.string()))}
    return GroupContext(key, np.array(hashes, np.uint64), tables, reject_member_lookup)


@pytest.mark.parametrize("seed", range(6))
def test_values_that_come_and_go(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr(ordered_multiset, "BUCKET_VALUES_MAX", random.choice((1, 3)))
    multiset = OrderedMultiset("0:", {"k": pa.string()}, ("now", "settled"))
    tables = {name: StateTable(schema) for name, schema in multiset.table_schemas.items()}
    hashes = random.choice(([7, 8, 9], [7, 7, 7]))
    # No two have the first 15 digits in common: buckets of such values are not split, unless their limit is smaller.
    drawn = [INT_MIN, INT_MAX, 1 << 40, *(random.randint(-300, 300) * 16 for _ in range(60))]
    members: list[tuple[int, int, int]] = []
    for step in range(14):
        is_leaving = step >= 7
        changed = []
        if is_leaving:
            random.shuffle(members)
            count = len(members) if step == 13 else random.randint(0, len(members))
            changed, members = members[:count], members[count:]
        else:
            changed = [(random.randrange(3), random.choice(drawn), random.randrange(2)) for _ in range(30)]
            members = members + changed
        groups, values, counters = (np.array([m[i] for m in changed], np.int64) for i in range(3))
        sign = -1 if is_leaving else 1
        changes = {"now": sign * (counters == 0).astype(int), "settled": sign * (counters == 1).astype(int)}
        tables = dict(multiset.add(context(hashes, tables), groups, order_codes(ValueColumn(values)), changes))
        for number, counter in enumerate(("now", "settled")):
            wanted = [sorted(x for g, x, c in members if (g, c) == (group, number)) for group in range(3)]
            asked = [(group, rank) for group, ordered in enumerate(wanted) for rank in range(len(ordered))]
            if not asked:
                continue
            group_numbers, ranks = (np.array(part, np.int64) for part in zip(*asked, strict=True))
            codes = multiset.select(tables, context(hashes, tables), group_numbers, ranks, counter)
            assert decode_order(codes, False).tolist() == [wanted[group][rank] for group, rank in asked]
    assert not members
    assert all(table.scan().row_count == 0 for table in tables.values())


def test_a_value_is_stored_once() -> None:
    multiset = OrderedMultiset("0:", {"k": pa.string()}, ("n",))
    tables = {name: StateTable(schema) for name, schema in multiset.table_schemas.items()}
    for _ in range(3):
        values = np.arange(2000) // 2
        groups, ones = np.zeros(2000, np.int64), np.ones(2000, np.int64)
        codes = order_codes(ValueColumn(values))
        tables = dict(multiset.add(context([7, 8, 9], tables), groups, codes, {"n": ones}))
    rows = tables[multiset.values].scan()
    counts = Counter(dict(zip(decode_order(rows["code"].data.view(np.uint64), False), rows["n"].data, strict=True)))
    assert counts == dict.fromkeys(range(1000), 6)


def test_codes_are_ordered_as_their_values() -> None:
    floats = [-1.7e308, -1.0, -5e-324, -0.0, 0.0, 5e-324, 0.1, 1.7e308]
    codes = order_codes(v.from_python(floats, FLOAT))
    assert codes.tolist() == sorted(codes.tolist())
    assert codes[3] == codes[4]
    assert decode_order(codes, True).tolist() == [x + 0.0 for x in floats]
    ints = [INT_MIN, -1, 0, 1, INT_MAX]
    codes = order_codes(v.from_python(ints, INT))
    assert codes.tolist() == sorted(codes.tolist())
    assert decode_order(codes, False).tolist() == ints
