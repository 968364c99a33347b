"""Errors in files of recorded events, with the file's name, the line's number and the line's text."""

from dataclasses import dataclass, replace
from functools import cached_property

from smile.errors import Diagnostic, SmileError, render
from smile.source import Source, Span


@dataclass(frozen=True)
class EventLine(Source):
    """A line of a file. Spans are offsets into the line."""

    number: int

    def line_col(self, offset: int) -> tuple[int, int]:
        return self.number, offset + 1

    def line(self, number: int) -> str:
        return self.text.rstrip("\r\n")


@dataclass(frozen=True)
class BadEvent:
    """A refused line. If the line is too long, `raw` is only its beginning."""

    name: str
    number: int
    raw: bytes
    diagnostic: Diagnostic

    @staticmethod
    def from_diagnostic(name: str, number: int, raw: bytes, diagnostic: Diagnostic) -> "BadEvent":
        """A diagnostic without a span gets the whole line as its span."""
        return BadEvent(name, number, raw, replace(diagnostic, span=diagnostic.span or Span(0, len(raw))))

    @cached_property
    def source(self) -> EventLine:
        return EventLine(self.name, self.raw.decode("utf-8", "replace"), self.number)

    def render(self) -> str:
        """`file:line:col`, the message, the line, and the hint."""
        return render([self.diagnostic], self.source)


class EventError(SmileError):
    """A line was refused. The diagnostic's span refers to `source`."""

    def __init__(self, bad: BadEvent) -> None:
        super().__init__(bad.diagnostic)
        self.bad = bad
        self.source = bad.source

    def __str__(self) -> str:
        return f"{self.bad.name}:{self.bad.number}: {self.bad.diagnostic.message}"
