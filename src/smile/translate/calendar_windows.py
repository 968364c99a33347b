"""Translates TUMBLE by months or years, or by the days of a time zone, to columns with the beginning and the end of the
period that a row is in. Windows of weeks begin on Monday."""

import re
from typing import Final

from sqlglot import exp

from smile import lang
from smile.algebra import mmpl
from smile.algebra.periods import UNITS, read_period
from smile.algebra.types import STRING, TICKS_PER_MICROSECOND, TIME, TIMESTAMP
from smile.errors import error
from smile.lang import span_of
from smile.operators.window import WINDOW_COLUMNS
from smile.translate.expressions import check_zone
from smile.translate.pipeline import QueryPipeline

_WRITTEN: Final = re.compile(r"\s*([0-9]+)\s*([A-Za-z]*)\s*")
_FIRST_MONDAY: Final = UNITS["week"].origin * TICKS_PER_MICROSECOND


def is_calendar_window(node: lang.StreamFunction) -> bool:
    """Whether the windows have different lengths."""
    period = read_period(_period_text(node.intervals[0]))
    return node.zone is not None or (period is not None and period.in_months)


def first_monday(node: lang.StreamFunction, distance: int) -> int:
    """The offset of windows of weeks: between 0 and the distance of windows, in ticks. 0 for other windows."""
    text = _period_text(node.intervals[0])
    return _FIRST_MONDAY % distance if re.search(r"weeks?$", text) and distance > 0 else 0


def calendar_windows(source: QueryPipeline, node: lang.StreamFunction) -> mmpl.Rel:
    assert node.column is not None
    span = span_of(node)
    on = source.translator().column_name(node.column)
    type_ = source.heading.columns[on]
    if type_ not in (TIME, TIMESTAMP):
        raise error("E046", f"a window needs a time or a timestamp, but {on} is {type_}", span_of(node.column))
    if len(node.intervals) > 1:
        message = "windows of the calendar cannot be shifted by an offset"
        hint = "Leave the offset out: months begin on the first, weeks on Monday, days at midnight in the time zone."
        raise error("E046", message, span_of(node.intervals[1]), hint)
    text = _period_text(node.intervals[0])
    if read_period(text) is None:
        message = "a window of the calendar needs a whole number of days, weeks, months or years"
        hint = "Write one unit, as in INTERVAL '1' DAY or INTERVAL '3' MONTH."
        raise error("E046", message, span_of(node.intervals[0]), hint)
    if node.zone is not None:
        check_zone(text, node.zone.name, span_of(node.zone))
    time = mmpl.ColumnRef(on, span=span)
    moment = time if type_ == TIMESTAMP else mmpl.Cast(time, TIMESTAMP, span=span)
    zone = () if node.zone is None else (mmpl.Constant(node.zone.name, STRING, span=span_of(node.zone)),)
    boundaries = [
        mmpl.Call(function, (mmpl.Constant(text, STRING), moment, *zone), span=span)
        for function in ("date_trunc", "period_end")
    ]
    values = [b if type_ == TIMESTAMP else mmpl.Cast(b, TIME, span=span) for b in boundaries]
    rows = source.rel
    if source.heading.tick[:1] != (on,) or source.heading.total:
        rows = mmpl.Restrict(rows, mmpl.Call("is not null", (time,), span=span), span=span)
    return mmpl.Extend(rows, tuple(zip(WINDOW_COLUMNS, values, strict=True)), span=span)


def _period_text(interval: exp.Expr) -> str:
    """An interval as a period is written, such as `3 months`; empty if it has other parts."""
    if not isinstance(interval, exp.Interval) or not isinstance(interval.this, exp.Literal):
        return ""
    written = _WRITTEN.fullmatch(interval.this.name)
    unit = interval.args.get("unit")
    name = "" if written is None else (written[2] or (unit.name if unit is not None else "")).lower()
    if written is None or not name:
        return ""
    return name if written[1] == "1" else f"{written[1]} {name}"
