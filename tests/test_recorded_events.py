"""The recorded events of the example programs: each line could be published as it stands, and together they show what the
program's views do."""

import json
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from smile.algebra import mmpl
from smile.algebra.types import DataType
from smile.knowledge.values.mask import Mask
from smile.knowledge.values.transfer import exact_cell, expression_knowledge
from smile.program import compile_program, read_source
from smile.reference.evaluate import ProgramEvaluation, evaluate
from smile.reference.history import HORIZON_MIN, History, RecordedLine, read_events
from smile.reference.relation import ReferenceRow, Relation
from tests.programs.reader import analyse

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
PROGRAMS = {path.stem: path for path in sorted((ROOT / "programs").glob("*.smile"))}
JSON_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "bool": bool,
    "int": int,
    "decimal": (int, str),
    "time": (int, str),
}
"""What a column's values are read as; decimals stay as they are written."""


def program_of(name: str) -> mmpl.Program:
    return compile_program(read_source(str(PROGRAMS[name]))).original


def lines_of(name: str) -> list[RecordedLine]:
    return read_events(PROGRAMS[name].with_suffix(".events").read_text())


def relations(program: mmpl.Program, lines: list[RecordedLine]) -> dict[str, Relation]:
    return evaluate(program, analyse(program), History.from_lines(program, lines))


def shown(program: mmpl.Program, lines: list[RecordedLine], view: str) -> list[ReferenceRow]:
    """Of the one view, without computing what it does not need."""
    evaluation = ProgramEvaluation(program, analyse(program), History.from_lines(program, lines))
    return [row for row in evaluation.relation(mmpl.RelationRef(view)).values() if row.is_shown]


every_program = pytest.mark.parametrize("name", PROGRAMS)


@every_program
def test_the_program_says_how_to_run_it(name: str) -> None:
    command = f"-- Try it: smile replay programs/{name}.smile --events programs/{name}.events"
    assert command in PROGRAMS[name].read_text().splitlines()


@every_program
def test_it_is_short_and_ends_with_a_silence_of_all_streams(name: str) -> None:
    lines = lines_of(name)
    assert 20 <= len(lines) <= 200
    assert list(lines[-1]) == ["silence_to"]


@every_program
def test_ticks_ascend_and_no_event_breaks_a_silence(name: str) -> None:
    horizons = {stream.name: HORIZON_MIN for stream in program_of(name).streams}
    for number, line in enumerate(lines_of(name), 1):
        if "silence_to" in line:
            tick = int(line["silence_to"])
            for stream in [line["stream"]] if "stream" in line else horizons:
                assert tick >= horizons[stream], f"line {number}"
                horizons[stream] = tick
        else:
            assert int(line["at"]) > horizons[line["stream"]], f"line {number}"
            horizons[line["stream"]] = int(line["at"])


@every_program
def test_large_ticks_are_text(name: str) -> None:
    """A reader that has only floats loses no digit of them."""

    def is_safe(value: object) -> bool:
        if isinstance(value, dict):
            return all(map(is_safe, value.values()))
        return not isinstance(value, int) or value <= 2**53

    assert all(map(is_safe, map(json.loads, PROGRAMS[name].with_suffix(".events").read_text().splitlines())))


@every_program
def test_every_event_fits_its_stream(name: str) -> None:
    program = program_of(name)
    streams = {stream.name: stream for stream in program.streams}
    for number, line in enumerate(lines_of(name), 1):
        if "event" not in line:
            continue
        assert set(line) == {"stream", "at", "event"}, f"line {number}"
        stream = streams[line["stream"]]
        columns = dict(stream.columns)
        assert set(line["event"]) == set(columns), f"line {number}"
        for column, value in line["event"].items():
            assert value is None or is_of(value, columns[column]), f"line {number}: {column}"
        history = History.from_lines(program, [line])
        types = {stream.tick: DataType("time"), **columns}
        (row,) = history.events[stream.name].values()
        cells = {column: exact_cell(value, types[column]) for column, value in row.items()}
        for check in stream.checks:
            held = expression_knowledge(check, cells, types)
            assert isinstance(held, Mask)
            assert held.now is not False, f"line {number}: {check}"


def is_of(value: object, data: DataType) -> bool:
    return isinstance(value, JSON_TYPES[data.name]) and (data.name == "bool") == isinstance(value, bool)


@every_program
def test_a_missing_value_occurs(name: str) -> None:
    assert any(None in line["event"].values() for line in lines_of(name) if "event" in line)


@every_program
def test_every_stream_has_events_and_every_view_shows_a_row_at_some_cut(name: str) -> None:
    program = program_of(name)
    lines = lines_of(name)
    empty = {definition.name for definition in (*program.streams, *program.views)}
    cut = len(lines)
    while empty and cut:
        relations_at_cut = relations(program, lines[:cut])
        empty -= {relation for relation in empty if any(row.is_shown for row in relations_at_cut[relation].values())}
        cut -= 1
    assert not empty


@pytest.mark.parametrize(
    ("name", "view"),
    [
        ("stocks", "Hourly"),
        ("stocks", "WantedThen"),
        ("sensors", "Hourly"),
        ("sensors", "Silent"),
        ("scoreboard", "Final"),
    ],
)
def test_a_silence_alone_makes_rows_final(name: str, view: str) -> None:
    program = program_of(name)
    lines = lines_of(name)
    silences = [number for number, line in enumerate(lines) if "silence_to" in line]
    assert any(final(program, lines[: n + 1], view) - final(program, lines[:n], view) for n in reversed(silences))


def final(program: mmpl.Program, lines: list[RecordedLine], view: str) -> set[tuple[object, ...]]:
    return {key for key, row in relations(program, lines)[view].items() if row.is_shown and row.is_final}


@pytest.mark.parametrize(
    ("name", "view"),
    [
        ("tradefloor", "RemainingBuy"),
        ("tradefloor", "RemainingSell"),
        ("tradefloor", "Matchable"),
        ("flights", "Cheapest"),
        ("flights", "Planned"),
        ("scoreboard", "Playing"),
    ],
)
def test_a_row_that_was_shown_is_gone_for_good(name: str, view: str) -> None:
    program = program_of(name)
    lines = lines_of(name)
    gone = {key for key, row in relations(program, lines)[view].items() if row.mask.is_permanently_hidden}
    cuts = (relations(program, lines[:cut])[view] for cut in range(len(lines)))
    assert any(row.is_shown for cut in cuts for key, row in cut.items() if key in gone)


@pytest.mark.parametrize(
    ("name", "view", "who", "by", "first", "expected"),
    [
        ("flights", "Cheapest", "flight", "price", min, ["AA141", "NW44", "AA141", "DL3"]),
        ("sensors", "Hottest", "sensor", "celsius", max, ["boiler", "kitchen", "boiler"]),
    ],
)
def test_leaders_are_overtaken(
    name: str, view: str, who: str, by: str, first: Callable[[list[Any]], Any], expected: list[str]
) -> None:
    """Who was first, one cut after another, each listed once for as long as they lead."""
    program = program_of(name)
    lines = lines_of(name)
    leaders = []
    for cut in range(1, len(lines) + 1):
        rows = [(row.cells[by].now, row.cells[who].now) for row in shown(program, lines[:cut], view)]
        leaders.append(first([row for row in rows if row[0] is not None])[1])
    assert [leader for leader, _ in groupby(leaders)] == expected
