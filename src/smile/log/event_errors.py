"""Places in a file of recorded events: a line has the number it has in its file, and all the text there is."""

from dataclasses import dataclass, replace
from functools import cached_property

from smile.errors import Diagnostic, SmileError, render
from smile.source import Source, Span


@dataclass(frozen=True)
class EventLine(Source):
    """Spans are offsets into the line."""

    number: int

    def line_col(self, offset: int) -> tuple[int, int]:
        return self.number, offset + 1

    def line(self, number: int) -> str:
        return self.text.rstrip("\r\n")


@dataclass(frozen=True)
class BadEvent:
    """A line that was refused; of one that is too long, `raw` is the beginning."""

    name: str
    number: int
    raw: bytes
    diagnostic: Diagnostic

    @staticmethod
    def from_diagnostic(name: str, number: int, raw: bytes, diagnostic: Diagnostic) -> "BadEvent":
        """What is about no place in particular is about the whole line."""
        return BadEvent(name, number, raw, replace(diagnostic, span=diagnostic.span or Span(0, len(raw))))

    @cached_property
    def source(self) -> EventLine:
        return EventLine(self.name, self.raw.decode("utf-8", "replace"), self.number)

    def render(self) -> str:
        """`file:line:col`, what is wrong, the line, a hint."""
        return render([self.diagnostic], self.source)


class EventError(SmileError):
    """The refusal of a line. `source` is what its diagnostic's span points into."""

    def __init__(self, bad: BadEvent) -> None:
        super().__init__(bad.diagnostic)
        self.bad = bad
        self.source = bad.source

    def __str__(self) -> str:
        return f"{self.bad.name}:{self.bad.number}: {self.bad.diagnostic.message}"
