"""An index of a table's history: for a key and an entry of it, the periods in which a row with them is in the table."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from smile.algebra import mmpl
from smile.broker.subscriptions.matching.filter_template import row_column
from smile.broker.subscriptions.matching.row_expressions import Columns, RowExpressions, RowPredicate, RowValue
from smile.broker.subscriptions.matching.table_history import Periods, TableHistory

Key = tuple[RowValue, ...]
Entries = Mapping[Key, Periods]
_NONE: Final[Entries] = {}


class TableIndex:
    """Rows have a key, which has no NULL, and an entry, both given by expressions over `row_column`s. `on_change` is
    called with the key, the entry and its periods when they have changed, `on_reset` when everything is changed."""

    def __init__(
        self,
        history: TableHistory,
        predicate: mmpl.Expr | None,
        key: Sequence[mmpl.Expr],
        entry: Sequence[mmpl.Expr],
        on_change: Callable[[Key, Key, Periods], None] = lambda *_: None,
        on_reset: Callable[[], None] = lambda: None,
    ) -> None:
        types = {row_column(name): data for name, data in history.types.items()}
        self._predicate = None if predicate is None else RowPredicate(predicate, types)
        self._expressions = RowExpressions([*key, *entry], types)
        self._key_length = len(key)
        self._on_change, self._on_reset = on_change, on_reset
        self._keys: list[tuple[Key, Key] | None] = []
        """Of each row; None if the row is not in the index."""
        self._entries: dict[Key, dict[Key, Periods]] = {}
        self._counts: dict[tuple[Key, Key], int] = {}
        history.observe(self)

    def find(self, key: Key) -> Entries:
        return self._entries.get(key, _NONE)

    def reset(self) -> None:
        self._keys, self._entries, self._counts = [], {}, {}
        self._on_reset()

    def rows_added(self, rows: Columns, count: int) -> None:
        columns = {row_column(name): column for name, column in rows.items()}
        holds = None if self._predicate is None else self._predicate.holds(columns, count).tolist()
        for n, values in enumerate(self._expressions.compute_rows(columns, count)):
            key, entry = values[: self._key_length], values[self._key_length :]
            is_indexed = (holds is None or holds[n]) and None not in key
            self._keys.append((key, entry) if is_indexed else None)

    def row_entered(self, number: int, tick: int) -> None:
        keys = self._keys[number]
        if keys is None:
            return
        count = self._counts[keys] = self._counts.get(keys, 0) + 1
        if count == 1:
            key, entry = keys
            periods = self._entries.setdefault(key, {}).setdefault(entry, Periods())
            periods.begin(tick)
            self._on_change(key, entry, periods)

    def row_left(self, number: int, tick: int) -> None:
        keys = self._keys[number]
        if keys is None:
            return
        count = self._counts[keys] = self._counts[keys] - 1
        if not count:
            key, entry = keys
            periods = self._entries[key][entry]
            periods.finish(tick)
            self._on_change(key, entry, periods)

    def forget_before(self, tick: int) -> None:
        for key, entries in list(self._entries.items()):
            for entry, periods in list(entries.items()):
                count = len(periods.starts)
                periods.forget_before(tick)
                if not periods.starts:
                    del entries[entry]
                    del self._counts[key, entry]
                if len(periods.starts) < count:
                    self._on_change(key, entry, periods)
            if not entries:
                del self._entries[key]
