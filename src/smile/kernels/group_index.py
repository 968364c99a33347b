"""The index of stored rows by the hash of their group.

A group hash also finds groups whose key has NULLs, unlike `StateTable.match` on the key columns. Different groups can
have equal hashes, so callers must compare the columns too.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from smile.columns import knowledge as k
from smile.columns.hashing import hashes
from smile.columns.knowledge import KnowledgeColumn
from smile.columns.values import Array, ValueColumn
from smile.state.row_lookup import RowLookup
from smile.state.table import StateTable

GROUP_HASH = "group"
"""The column of group hashes, which is indexed."""


def compute_group_hashes(per: Sequence[ValueColumn], count: int) -> ValueColumn:
    """The group hash of each row. Without group columns, all rows are one group."""
    return ValueColumn(hashes(per, count).view(np.int64))


def find_group_rows(table: StateTable, group_hashes: Array) -> RowLookup:
    """All rows with one of these group hashes."""
    return table.match((GROUP_HASH,), [ValueColumn(np.unique(group_hashes))])[1]


def unchanging_values(
    name: str, fixed: Mapping[str, ValueColumn], columns: Mapping[str, KnowledgeColumn]
) -> ValueColumn:
    """The values of a column that never changes, whether the layout has it as fixed or as evolving."""
    return k.current_values(find_column(name, fixed, columns))


def find_column(name: str, fixed: Mapping[str, ValueColumn], columns: Mapping[str, KnowledgeColumn]) -> KnowledgeColumn:
    return columns[name] if name in columns else fixed[name]
