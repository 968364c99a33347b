"""Live tables and plots: what a notebook shows follows the rows, and the band of a plot is what is known."""

import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies as st

from smile import limits
from smile.client import Rows, Schema, tick_of
from smile.client.changes import Frame
from smile.client.notebook import HistoryPlot, LiveDisplay, RowPlot, _axis
from smile.client.plot import HEIGHT, WIDTH, Point, plot_svg
from smile.errors import SmileError
from tests.docs import ROOT
from tests.processes import wait_until

SCHEMA = Schema.from_json(
    {
        "subscribed": "Volume",
        "key": ["lot", "issue"],
        "columns": {"lot": "int", "issue": "string", "total": "decimal(38, 0)"},
        "streams": ["Trades"],
    }
)


def deliver(rows: Rows, *cells: tuple[int, str, int, dict[str, Any]], reset: bool = False) -> None:
    """Delivers a frame of rows: lot, issue, total, and what is known of the total."""
    changes = [
        SCHEMA.decode_change(
            {"key": {"lot": lot, "issue": issue}, "row": {"total": total}, "knowledge": {"total": known}}
            | {"final": "exactly" in known, "steps": 1}
        )
        for lot, issue, total, known in cells
    ]
    notify = rows.deliver_frame(Frame(changes, {"Trades": 1}, reset=reset))
    if notify is not None:
        notify()


@pytest.fixture
def volume() -> Rows:
    rows = Rows()
    rows.set_schema(SCHEMA)
    deliver(rows, (1, "IBM", 50, {"at_least": 50}), (2, "IBM", 7, {"exactly": 7}), reset=True)
    return rows


class Screen:
    """What a notebook shows, in order."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def show(self, html: str) -> Callable[[str], None]:
        self.shown.append(html)
        return self.shown.append


def test_a_live_table_follows_the_rows_until_it_is_stopped(volume: Rows) -> None:
    screen = Screen()
    live = LiveDisplay(volume, volume._repr_html_, screen.show)
    assert "≥50" in screen.shown[-1]
    deliver(volume, (1, "IBM", 60, {"at_least": 60}))
    wait_until(lambda: "≥60" in screen.shown[-1], "the change is not shown")
    deliver(volume, (1, "IBM", 61, {"exactly": 61}))
    live.stop()
    assert "=61" in screen.shown[-1] == live.html, "stop() shows the last rows"
    deliver(volume, (1, "IBM", 61, {"exactly": 61}), (3, "SUN", 1, {"at_least": 1}))
    assert "SUN" not in screen.shown[-1]
    assert not [thread for thread in threading.enumerate() if thread.name == "smile-live-display"]


def test_rows_that_stay_as_they_are_are_not_shown_again(volume: Rows) -> None:
    screen = Screen()
    live = LiveDisplay(volume, volume._repr_html_, screen.show)
    deliver(volume, (1, "IBM", 50, {"at_least": 50}))
    live.stop()
    assert len(screen.shown) == 1


def test_a_front_end_that_fails_ends_only_the_display(volume: Rows, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: str) -> None:
        raise RuntimeError("gone")

    live = LiveDisplay(volume, volume._repr_html_, lambda _: fail)
    deliver(volume, (1, "IBM", 60, {"at_least": 60}))
    live.stop()
    assert "a live display cannot be updated" in caplog.text
    assert volume[(1, "IBM")].row["total"] == 60


def test_a_plot_has_a_line_for_each_value_of_by(volume: Rows) -> None:
    deliver(volume, (1, "HP<", 3, {"between": [2, 9]}))
    svg = RowPlot(volume, "total", "lot", "issue").render()
    texts = [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")]
    assert texts[0] == "Volume: total by lot"
    assert {"IBM", "HP<"} <= set(texts)
    assert svg.count("<circle") == 3
    assert svg.count('fill="#fff"') == 2, "two values are not final"


def test_a_plot_without_x_has_the_history_of_each_row(volume: Rows) -> None:
    times = iter([10.0, 11.0, 13.0])
    plot = HistoryPlot(volume, "total", lambda: next(times))
    assert plot.render().count("<circle") == 2
    deliver(volume, (1, "IBM", 60, {"at_least": 60}))
    svg = plot.render()
    assert svg.count("<circle") == 4
    assert ">1 s<" in svg and ">3 s<" in svg


def test_only_some_series_are_shown(volume: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "notebook_series_max", 1)
    deliver(volume, (1, "HP", 3, {"at_least": 3}))
    assert "(the first 1 of 2 series)" in RowPlot(volume, "total", "lot", "issue").render()


def test_the_recipe_for_matplotlib_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib").use("agg")
    text = (ROOT / "docs" / "notebooks.md").read_text()
    recipe = text.split("```python recipe=matplotlib\n")[1].split("```")[0]
    columns = {"window_end": "time", "sensor": "string", "high": "float"}
    key = ["window_end", "sensor"]
    schema = Schema.from_json({"subscribed": "Hourly", "key": key, "columns": columns, "streams": ["Readings"]})
    noon = tick_of(datetime(2024, 5, 31, 12, tzinfo=UTC))
    changes = [
        schema.decode_change(
            {"key": {"window_end": noon, "sensor": "oven"}, "row": {"high": 7.5}}
            | {"knowledge": {"high": known}, "final": "exactly" in known, "steps": 1}
        )
        for known in ({"at_least": 7.5}, {"between": [7.5, 9]}, {"exactly": 7.5})
    ]
    rows = Rows()
    rows.set_schema(schema)
    rows.deliver_frame(Frame(changes, {"Readings": 1}, reset=True))
    monkeypatch.chdir(tmp_path)
    exec(compile(recipe, "notebooks.md", "exec"), {"hourly": rows})
    assert (tmp_path / "high.png").stat().st_size > 1000


def test_a_column_of_text_is_not_plotted(volume: Rows) -> None:
    for plot in (lambda: RowPlot(volume, "issue", "lot", None), lambda: HistoryPlot(volume, "issue", lambda: 0.0)):
        with pytest.raises(SmileError, match=r"Volume\.issue is not a column of numbers") as failure:
            plot()
        assert failure.value.hint == "These can be plotted: lot, total."


def test_an_axis_of_several_days_has_dates() -> None:
    noon = datetime(2024, 5, 31, 12)
    tick = tick_of(noon.astimezone(UTC))
    hour, day = 3_600_000_000 * 1024, 24 * 3_600_000_000 * 1024
    for distance, expected in ((hour, ["12:00:00", "13:00:00"]), (day, ["05-31 12:00", "06-01 12:00"])):
        positions, text = _axis([tick, tick + distance], True)
        assert [text(at) for at in positions.values()] == expected
    days = [datetime(2024, 5, 31), datetime(2024, 6, 1)]
    positions, text = _axis(days, False)
    assert [text(positions[value]) for value in days] == ["2024-05-31", "2024-06-01"]


def test_a_column_that_is_not_there(volume: Rows) -> None:
    with pytest.raises(SmileError) as failure:
        RowPlot(volume, "totals", "lot", None)
    assert (failure.value.code, failure.value.hint) == ("E099", "Did you mean total?")


NUMBERS = st.floats(-1e300, 1e300) | st.integers(-(2**63), 2**63).map(float)
POINTS = st.builds(Point, NUMBERS, st.none() | NUMBERS, st.none() | NUMBERS, st.none() | NUMBERS, st.booleans())


@given(st.dictionaries(st.sampled_from("abc"), st.lists(POINTS, max_size=5), max_size=3))
def test_whatever_is_plotted_is_within_the_picture(series: dict[str, list[Point]]) -> None:
    svg = plot_svg("any", series, str)
    ElementTree.fromstring(svg)
    for at, height in re.findall(r'cx="(\S+)" cy="(\S+)"', svg):
        assert 0 <= float(at) <= WIDTH
        assert 0 <= float(height) <= HEIGHT
    assert "nan" not in svg and "inf" not in svg.replace("infinit", "")


@given(NUMBERS, st.lists(st.floats(0, 1), min_size=2, max_size=2))
def test_the_band_contains_its_value(value: float, distances: list[float]) -> None:
    reach = abs(value) or 1.0
    low, high = value - distances[0] * reach, value + distances[1] * reach
    svg = plot_svg("band", {"v": [Point(0, value, low, high, False)]}, str)
    ((top, bottom),) = re.findall(r'd="M\S+ (\S+)L\S+ (\S+)" stroke=', svg)
    (height,) = re.findall(r'cy="(\S+)"', svg)
    assert float(top) - 0.11 <= float(height) <= float(bottom) + 0.11


def test_there_is_no_bound_at_the_edge() -> None:
    svg = plot_svg("open", {"v": [Point(0, 3, 3, None, False), Point(1, 4, 4, 4, True)]}, str)
    assert f"L{re.findall('cx=.([0-9.]+)', svg)[0]} " in svg
    (bar,) = re.findall(r'd="M\S+ (\S+)L\S+ (\S+)" stroke=', svg)
    assert bar[0] == "30.0", "the band reaches the top"
