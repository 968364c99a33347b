"""Measures a rate: how much has come in the last seconds."""

from math import exp
from typing import Final

_PERIOD_S: Final = 10.0
"""What came this long ago counts for about a third of what comes now."""


class RateMeter:
    def __init__(self) -> None:
        self.total = 0
        self._recent = 0.0
        self._at = 0.0

    def add(self, count: int, now: float) -> None:
        self.total += count
        self._recent = self._recent_at(now) + count
        self._at = max(now, self._at)

    def per_second(self, now: float) -> float:
        return self._recent_at(now) / _PERIOD_S

    def _recent_at(self, now: float) -> float:
        return self._recent * exp(-max(now - self._at, 0.0) / _PERIOD_S)
