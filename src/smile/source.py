"""The text of a program, and positions in it. A span is a half-open range of character offsets."""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Span:
    start: int
    end: int

    def cover(self, other: "Span | None") -> "Span":
        if other is None:
            return self
        return Span(min(self.start, other.start), max(self.end, other.end))


@dataclass(frozen=True)
class Source:
    """`name` is shown in errors: the path as the user gave it."""

    name: str
    text: str

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0] + [i + 1 for i, c in enumerate(self.text) if c == "\n"]

    def line_col(self, offset: int) -> tuple[int, int]:
        """The line and the column of a character offset, both counted from 1."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def span_at(self, line: int, col: int, length: int) -> Span:
        """The inverse of `line_col`."""
        start = self._line_starts[min(line, len(self._line_starts)) - 1] + col - 1
        return Span(start, start + length)

    def line(self, number: int) -> str:
        start = self._line_starts[number - 1]
        end = self._line_starts[number] if number < len(self._line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")
