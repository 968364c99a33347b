"""Trade-Floor written by hand, for this program only: dictionaries that are updated event by event."""

from collections.abc import Iterator
from typing import Any

from smile.log.input_batch import InputBatch


class TradeFloorByHand:
    """The remaining shares of open bids, and the pairs that can be matched, without knowledge of what is final."""

    def __init__(self) -> None:
        self.buys: dict[int, list[Any]] = {}
        self.sells: dict[int, list[Any]] = {}
        self.levels: dict[tuple[str, int], tuple[set[int], set[int]]] = {}
        self.matchable: dict[tuple[int, int], tuple[int, int]] = {}

    @staticmethod
    def ordered_events(input_batch: InputBatch) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """The events of a batch in the order of their ticks."""
        events = []
        for stream, batch in input_batch.events.items():
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            events += [(row[0], stream, row) for row in rows]
        return ((stream, row) for _, stream, row in sorted(events))

    def apply_event(self, stream: str, row: tuple[Any, ...]) -> None:
        if stream == "Matches":
            _, buy, sell, traded = row
            self._apply_match(self.buys, buy, 0, traded)
            self._apply_match(self.sells, sell, 1, traded)
            return
        side = 0 if stream == "BuyBids" else 1
        key, issue, price, bid = row
        level = self.levels.setdefault((issue, price), (set(), set()))
        (self.buys if side == 0 else self.sells)[key] = [issue, price, bid]
        level[side].add(key)
        for other in level[1 - side]:
            self._set_pair(key, other) if side == 0 else self._set_pair(other, key)

    def _set_pair(self, buy: int, sell: int) -> None:
        self.matchable[buy, sell] = (self.buys[buy][2], self.sells[sell][2])

    def _apply_match(self, bids: dict[int, list[Any]], key: int, side: int, traded: int) -> None:
        bid = bids.get(key)
        if bid is None:
            return
        bid[2] -= traded
        level = self.levels[bid[0], bid[1]]
        if bid[2] > 0:
            for other in level[1 - side]:
                self._set_pair(key, other) if side == 0 else self._set_pair(other, key)
            return
        for other in level[1 - side]:
            self.matchable.pop((key, other) if side == 0 else (other, key), None)
        level[side].discard(key)
        del bids[key]
