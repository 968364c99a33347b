"""Live tables and plots in a notebook: what is shown is replaced while the rows change, also while no cell runs."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Protocol

from smile import limits
from smile.client.changes import Change, Key, Schema
from smile.client.plot import Point, plot_svg
from smile.client.ticks import as_datetime
from smile.client.value_text import value_text
from smile.errors import did_you_mean, error
from smile.horizons import is_clock_tick

REFRESH_S = 0.25
"""More than four pictures a second are of no use to a person, and make a notebook slow."""

_NUMBER_KINDS = ("int", "float", "decimal", "bool", "interval", "time")

_log = logging.getLogger("smile.client")


class LiveRows(Protocol):
    """Rows that report their changes: a table, or a snapshot, which has none."""

    @property
    def schema(self) -> Schema: ...

    def __iter__(self) -> Iterator[Change]: ...

    def changed(self, callback: Callable[[Sequence[Change]], None]) -> object: ...

    def stop_calling(self, callback: Callable[[Sequence[Change]], None]) -> None: ...


class DisplayHandle(Protocol):
    """What IPython returns for something that is displayed."""

    def update(self, obj: Any) -> None: ...


class LiveDisplay:
    """Something that a notebook shows and that follows the rows of a table, until `stop()`. `html` is what is shown."""

    def __init__(self, rows: LiveRows, render: Callable[[], str], show: Callable[[str], Callable[[str], None]]) -> None:
        """`show` displays HTML, and returns a function that replaces it."""
        self._rows, self._render = rows, render
        self._changed, self._is_stopped = threading.Event(), threading.Event()
        self.html = render()
        self._replace = show(self.html)
        rows.changed(self._note_change)
        self._thread = threading.Thread(target=self._follow, name="smile-live-display", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Shows the rows as they are now, and no later ones."""
        self._rows.stop_calling(self._note_change)
        self._is_stopped.set()
        self._changed.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _note_change(self, _: Sequence[Change]) -> None:
        self._changed.set()

    def _follow(self) -> None:
        is_stopped = False
        while not is_stopped:
            self._changed.wait()
            self._changed.clear()
            is_stopped = self._is_stopped.is_set()
            try:
                html = self._render()
                if html != self.html:
                    self.html = html
                    self._replace(html)
            except Exception:  # noqa: BLE001  # whatever a notebook's front end raises
                _log.exception("a live display cannot be updated")
                return
            self._is_stopped.wait(REFRESH_S)


def show_in_notebook(html: str) -> Callable[[str], None]:
    """Displays HTML as the output of the current cell. Returns a function that replaces it."""
    from IPython.display import HTML, display  # noqa: PLC0415  # only notebooks have it

    handle: DisplayHandle | None = display(HTML(html), display_id=True)  # type: ignore[no-untyped-call]  # IPython has no types
    return lambda changed: handle.update(HTML(changed)) if handle is not None else None  # type: ignore[no-untyped-call]


class RowPlot:
    """Renders the values of a column of all rows, by another column."""

    def __init__(self, rows: LiveRows, y: str, x: str, by: str | None) -> None:
        _require_columns(rows, y, x, *([by] if by is not None else []))
        _require_numbers(rows, y)
        self._rows, self._y, self._x, self._by = rows, y, x, by

    def render(self) -> str:
        rows = [row for row in self._rows if row.values[self._x] is not None]
        positions, x_text = _axis([row.values[self._x] for row in rows], self._is_tick())
        series: dict[str, list[Point]] = {}
        for row in sorted(rows, key=lambda row: positions[row.values[self._x]]):
            name = self._y if self._by is None else row.column_text(self._by)
            series.setdefault(name, []).append(_point(positions[row.values[self._x]], row, self._y))
        return _plot(f"{self._rows.schema.view}: {self._y} by {self._x}", series, x_text)

    def _is_tick(self) -> bool:
        return self._rows.schema.columns[self._x].kind == "time"


class HistoryPlot:
    """Renders the values of a column of each row, as they evolve from now on."""

    def __init__(self, rows: LiveRows, y: str, clock: Callable[[], float]) -> None:
        _require_columns(rows, y)
        _require_numbers(rows, y)
        self._rows, self._y, self._clock = rows, y, clock
        self._start = clock()
        self._samples: dict[Key, deque[Point]] = {}

    def render(self) -> str:
        now = self._clock() - self._start
        names = {}
        for row in self._rows:
            names[row.id] = ", ".join(row.column_text(name) for name in row.key)
            samples = self._samples.setdefault(row.id, deque(maxlen=limits.notebook_samples_max))
            samples.append(_point(now, row, self._y))
        self._samples = {key: samples for key, samples in self._samples.items() if key in names}
        series = {names[key]: list(samples) for key, samples in self._samples.items()}
        return _plot(f"{self._rows.schema.view}: {self._y}", series, lambda seconds: f"{seconds:.0f} s")


def _require_columns(rows: LiveRows, *names: str) -> None:
    columns = rows.schema.columns
    for name in names:
        if name not in columns:
            raise error("E099", f"{rows.schema.view} has no column {name}", hint=did_you_mean(name, columns))


def _require_numbers(rows: LiveRows, y: str) -> None:
    columns = rows.schema.columns
    if columns[y].kind not in _NUMBER_KINDS:
        numbers = ", ".join(name for name, column in columns.items() if column.kind in _NUMBER_KINDS)
        hint = f"These can be plotted: {numbers}." if numbers else None
        raise error("E099", f"{rows.schema.view}.{y} is not a column of numbers", hint=hint)


def _plot(title: str, series: Mapping[str, Sequence[Point]], x_text: Callable[[float], str]) -> str:
    shown = dict(sorted(series.items())[: limits.notebook_series_max])
    if len(shown) < len(series):
        title += f" (the first {len(shown)} of {len(series):,} series)"
    return plot_svg(title, shown, x_text)


def _point(x: float, row: Change, column: str) -> Point:
    known = row[column]
    value = _number(known.value)
    return Point(x, value, _number(known.low), _number(known.high), known.is_final)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float | Decimal) else None


def _axis(values: Sequence[Any], is_tick: bool) -> tuple[dict[Any, float], Callable[[float], str]]:
    """The positions of the values on the x-axis, and the labels of positions. What is no number is placed in order."""
    distinct = sorted(set(values))
    if is_tick and all(map(is_clock_tick, distinct)):
        by_position = {as_datetime(tick).timestamp(): tick for tick in distinct}
        times = {at: as_datetime(tick).astimezone() for at, tick in by_position.items()}
        texts = dict(zip(times, _time_texts(list(times.values())), strict=True))
        return {tick: at for at, tick in by_position.items()}, texts.__getitem__
    if all(isinstance(value, int | float | Decimal) for value in distinct):
        return {value: float(value) for value in distinct}, value_text
    if all(isinstance(value, datetime) for value in distinct):
        texts = dict(zip((value.timestamp() for value in distinct), _time_texts(distinct), strict=True))
        return {value: value.timestamp() for value in distinct}, texts.__getitem__
    texts = {float(number): _text(value) for number, value in enumerate(distinct)}
    return {value: float(number) for number, value in enumerate(distinct)}, texts.__getitem__


def _time_texts(times: Sequence[datetime]) -> list[str]:
    """Labels of ascending times: with dates if they are of several days, and without the time of day if it is always
    midnight."""
    if not times or times[0].date() == times[-1].date():
        return [f"{time:%H:%M:%S}" for time in times]
    if all(time.time() == datetime.min.time() for time in times):
        return [f"{time:%Y-%m-%d}" for time in times]
    return [f"{time:%m-%d %H:%M}" for time in times]


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, date) else value_text(value)
