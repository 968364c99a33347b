"""A story: events at given times, and steps that say what a view shows meanwhile. `smile demo` plays it in a terminal,
and the console shows its steps as a tour.

A story runs an example program in which long times are replaced by short ones. It is repeated in rounds. Nothing here
knows a broker or a clock.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class TimedEvent:
    """An event of a stream, `at_s` seconds after the start of its round."""

    at_s: float
    stream: str
    event: Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """From `at_s` on, until the next step, the story is about this view. `column` is the one to look at."""

    at_s: float
    title: str
    text: str
    view: str
    column: str | None = None

    def to_json(self) -> Json:
        return {"title": self.title, "text": self.text, "view": self.view, "column": self.column}


@dataclass(frozen=True)
class Absence:
    """A named subscriber of a view, which goes away for some seconds and comes back."""

    view: str
    leaves_at_s: float
    returns_at_s: float


@dataclass(frozen=True)
class Story:
    """`program` is the file of an example program, in which the texts `shortened` are replaced. `added` is SmileSQL
    that is appended. `make_events` returns the events of a round, which has a number; the same random numbers give the
    same events."""

    name: str
    title: str
    program: str
    seconds: float
    steps: Sequence[Step]
    make_events: Callable[[int, Random], Sequence[TimedEvent]]
    shortened: Mapping[str, str] = field(default_factory=dict)
    added: str = ""
    absence: Absence | None = None

    def program_text(self, example: str) -> str:
        """The program of the story, from the text of the example program."""
        text = example
        for long, short in self.shortened.items():
            if long not in text:
                raise ValueError(f"{self.program} does not contain {long}")
            text = text.replace(long, short)
        notes = [f"-- In this demo, {long} is {short}.\n" for long, short in self.shortened.items()]
        return "".join(notes) + text + self.added

    def step_at(self, seconds: float) -> tuple[int, Step]:
        """The step at this time of a round, and its number from 0."""
        number = max((i for i, step in enumerate(self.steps) if step.at_s <= seconds), default=0)
        return number, self.steps[number]

    def tour(self) -> Json:
        """The steps as the console shows them."""
        return {"title": self.title, "steps": [step.to_json() for step in self.steps]}


def every(period_s: float, start_s: float, end_s: float) -> list[float]:
    """Times from `start_s` until before `end_s`."""
    return [start_s + number * period_s for number in range(max(0, round((end_s - start_s) / period_s)))]
