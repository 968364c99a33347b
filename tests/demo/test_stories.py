"""The stories of the demos: their programs compile, their events are accepted, and what their steps say is true. A round
of each story is replayed, with ticks as a broker would give them."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from smile.client.ticks import TICKS_PER_SECOND
from smile.demo.broker_process import example_program
from smile.demo.stories import STORIES
from smile.demo.story import Step, Story, every
from smile.program import compile_program, read_source
from tests.processes import invoke_smile

START_S = 1_700_000_010.0
"""The beginning of a window of ten, fifteen or thirty seconds."""
Json = dict[str, Any]


@dataclass(frozen=True)
class TimedChange:
    """A message of a view, and how far the stream with events was known then, in seconds of the round."""

    at_s: float
    message: Json
    start_s: float

    @property
    def is_final(self) -> bool:
        return bool(self.message["final"])

    @property
    def is_deleted(self) -> bool:
        return "deleted" in self.message

    def window_end_s(self, seconds: float) -> float:
        return int(self.message["key"]["window_start"]) / TICKS_PER_SECOND - self.start_s + seconds


@dataclass(frozen=True)
class PlayedStory:
    changes: dict[str, list[TimedChange]]

    def between(self, view: str, start_s: float, end_s: float) -> Iterator[TimedChange]:
        return (change for change in self.changes.get(view, []) if start_s <= change.at_s < end_s)

    def row_count(self, view: str, at_s: float) -> int:
        """How many rows the view shows at this time."""
        shown = {str(change.message["key"]): not change.is_deleted for change in self.between(view, -1, at_s)}
        return sum(shown.values())


def play(story: Story, folder: Path, start_s: float, seed: int) -> PlayedStory:
    """The events of a round that begins at this time, in seconds since 1970."""
    program, events = folder / story.program, folder / "story.events"
    program.write_text(story.program_text(example_program(story.program).read_text()))
    lines, last_tick = [], 0
    for timed in story.make_events(0, Random(seed)):
        last_tick = max(int((start_s + timed.at_s) * TICKS_PER_SECOND), last_tick + 1024)
        lines.append(json.dumps({"stream": timed.stream, "at": str(last_tick), "event": timed.event}))
    events.write_text("\n".join(lines))
    replayed = invoke_smile(
        "replay", str(program), "--events", str(events), "--engine", "local", "--changes", "--batch", "1"
    )
    assert replayed.exit_code == 0, replayed.output
    changes: dict[str, list[TimedChange]] = {}
    pending = list[Json]()
    for line in replayed.stdout.splitlines():
        message = json.loads(line)
        if "progress" in message:
            at_s = max(int(tick) for tick in message["progress"].values()) / TICKS_PER_SECOND - start_s
            for change in pending:
                changes.setdefault(change["view"], []).append(TimedChange(at_s, change, start_s))
            pending = []
        else:
            pending.append(message)
    return PlayedStory(changes)


def check_stocks(played: PlayedStory) -> None:
    hourly = list(played.between("Hourly", 0, 15))
    assert any("at_least" in change.message["knowledge"]["high"] for change in hourly)
    assert any(change.is_final for change in hourly), "an hour closes during the first step"
    busy = [change for change in played.between("Busy", 0, 26) if not change.is_deleted]
    assert busy and all(change.is_final for change in busy)
    assert any(change.at_s < change.window_end_s(10) for change in busy), "decided before the hour is over"
    traders = list(played.between("HighTraders", 0, 60))
    assert any(change.is_deleted for change in traders) and any(not change.is_deleted for change in traders)
    assert not any(change.is_final for change in traders if not change.is_deleted)
    listed = {change.message["key"]["issue"]: change for change in played.between("WantedPrices", 36, 48)}
    assert not listed["SUN"].is_deleted and listed["IBM"].is_deleted


def check_scoreboard(played: PlayedStory) -> None:
    assert any(change.message["knowledge"]["homegoals"] == {"at_least": 2} for change in played.between("Board", 0, 13))
    quarters = list(played.between("Quarters", 0, 28))
    growing = [(c.message["key"], c.message["knowledge"]["goals"].get("at_least")) for c in quarters]
    exact = [(c.message["key"], c.message["knowledge"]["goals"].get("exactly")) for c in quarters if c.is_final]
    assert any(known in growing for known in exact), "a quarter ends, and its count becomes exact"
    decided = [change for change in played.between("HatTricks", 0, 37) if not change.is_deleted]
    assert any(change.is_final and change.at_s < change.window_end_s(30) for change in decided)
    assert any(change.is_final and not change.is_deleted for change in played.between("Final", 37, 47))


def check_flights(played: PlayedStory) -> None:
    assert any("at_most" in change.message["knowledge"]["unsold"] for change in played.between("Planned", 0, 12))
    gone = [change for change in played.between("Cheapest", 0, 37) if change.is_deleted and change.is_final]
    assert gone, "a flight is full, and leaves the list for good"
    assert any(change.is_deleted for change in played.between("CheapestForFive", 0, 37))
    offers = [change for change in played.between("Cheapest", 37, 46) if not change.is_deleted]
    assert any(change.message["row"]["flight"] == "SAS900" for change in offers)


def check_sensors(played: PlayedStory) -> None:
    hourly = [change.message for change in played.between("Hourly", 0, 14)]
    assert any("at_least" in message["knowledge"]["n"] for message in hourly)
    assert any(message["final"] and "exactly" in message["knowledge"]["n"] for message in hourly)
    (silent,) = [change for change in played.between("Silent", 0, 60) if not change.is_deleted]
    assert silent.is_final and silent.message["row"]["sensor"] == "cellar"
    assert 18 < silent.at_s < 26
    assert any(c.message["key"] == {"sensor": "oven"} and not c.is_deleted for c in played.between("Hottest", 26, 40))


CHECKS: dict[str, Callable[[PlayedStory], None]] = {
    "stocks": check_stocks,
    "scoreboard": check_scoreboard,
    "flights": check_flights,
    "sensors": check_sensors,
}
"""The events of the trading floor come from simulated users."""


FIRST_ROWS_S = {"Silent": 7.0}
"""When a view has rows after its step has begun, if that is what the step waits for."""


def check_story(name: str, folder: Path, start_s: float, seed: int) -> None:
    played = play(STORIES[name], folder, start_s, seed)
    CHECKS[name](played)
    for step in STORIES[name].steps:
        assert played.row_count(step.view, step.at_s + FIRST_ROWS_S.get(step.view, 2.0)), f"{step.title}: no rows"


@pytest.mark.parametrize("name", CHECKS)
def test_what_a_story_says_is_true(name: str, tmp_path: Path) -> None:
    check_story(name, tmp_path, START_S + 4, 1)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", CHECKS)
def test_what_a_story_says_is_true_whenever_it_begins(name: str, seed: int, tmp_path: Path) -> None:
    check_story(name, tmp_path, START_S + 3 * seed, seed)


@pytest.mark.parametrize("name", STORIES)
def test_a_story_shows_views_of_its_program(name: str, tmp_path: Path) -> None:
    story = STORIES[name]
    program = tmp_path / story.program
    program.write_text(story.program_text(example_program(story.program).read_text()))
    compiled = compile_program(read_source(str(program)))
    for step in story.steps:
        assert step.view in compiled.original.subscriptions
        assert step.column is None or step.column in compiled.analysis.relations[step.view].heading.columns
    assert story.absence is None or story.absence.view in {step.view for step in story.steps}
    assert [step.at_s for step in story.steps] == sorted(step.at_s for step in story.steps)
    assert story.steps[0].at_s == 0 and story.steps[-1].at_s < story.seconds
    assert story.tour()["steps"][0] == {
        "title": story.steps[0].title,
        "text": story.steps[0].text,
        "view": story.steps[0].view,
        "column": story.steps[0].column,
    }


def test_steps_and_times() -> None:
    story = Story(
        "one", "One", "stocks.smile", 10, (Step(0, "a", "", "V"), Step(4, "b", "", "V")), lambda _round, _random: ()
    )
    assert [story.step_at(at_s)[0] for at_s in (0.0, 3.9, 4.0, 99.0)] == [0, 0, 1, 1]
    assert every(0.5, 1, 2.5) == [1.0, 1.5, 2.0]


def test_a_program_without_the_text_to_shorten_is_noticed() -> None:
    with pytest.raises(ValueError, match="does not contain INTERVAL '1' HOUR"):
        STORIES["stocks"].program_text("CREATE STREAM S (t: time -> a: int);")
