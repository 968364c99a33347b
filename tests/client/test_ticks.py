"""Ticks as times, for programs and for people."""

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # it has no types of its own
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from smile.client import Knowledge, Rows, Schema, SmileError, as_datetime, tick_of
from smile.client.changes import Frame
from smile.client.ticks import TICKS_PER_MICROSECOND, interval_text, tick_text
from smile.client.values import ViewColumn
from smile.horizons import CLOCK_TICK_MIN

NOON = datetime(2024, 5, 31, 12, 0, 0, 500, UTC)


@given(st.integers(0, 2**63 - 1))
def test_a_time_is_a_tick_to_the_microsecond(tick: int) -> None:
    assert tick_of(as_datetime(tick)) == tick - tick % TICKS_PER_MICROSECOND
    assert as_datetime(tick_of(as_datetime(tick))) == as_datetime(tick)


def test_the_ticks_of_a_column_are_those_of_its_times() -> None:
    before_1970 = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
    times = [NOON, NOON.astimezone(timezone(timedelta(hours=9))), before_1970]
    ticks = [tick_of(time) for time in times]
    assert tick_of(times) == ticks
    assert tick_of(pa.array(times)).to_pylist() == ticks
    series = pd.Series(times, index=[5, 6, 7], name="at")
    assert tick_of(pd.to_datetime(series, utc=True)).to_dict() == dict(zip([5, 6, 7], ticks, strict=True))
    assert tick_of(pd.DatetimeIndex(times[:1])).tolist() == ticks[:1]
    assert tick_of(pl.Series("at", times)).to_list() == ticks
    naive = np.array(["2024-05-31T12:00:00.000500999", "1969-12-31T23:59:59.999999999"], "datetime64[ns]")
    assert tick_of(naive).tolist() == [ticks[0], ticks[2]]
    assert tick_of([NOON, None]) == [ticks[0], None]
    assert tick_of(pd.Series([NOON, None])).isna().tolist() == [False, True]
    for wrong in ([1, 2], pd.Series(["noon"]), 5, pa.array([2**62], pa.timestamp("s"))):
        with pytest.raises(SmileError) as refused:
            tick_of(wrong)
        assert refused.value.code == "E079"


def test_the_time_of_knowledge_is_that_of_its_value() -> None:
    assert as_datetime(Knowledge.exactly(tick_of(NOON))) == NOON


def test_a_time_without_a_zone_is_in_utc() -> None:
    assert as_datetime(tick_of(NOON)) == NOON
    assert tick_of(NOON.replace(tzinfo=None)) == tick_of(NOON)
    assert tick_of(NOON.astimezone(timezone(timedelta(hours=9)))) == tick_of(NOON)


@pytest.mark.usefixtures("five_hours_behind_utc")
def test_people_see_local_times() -> None:
    tick = tick_of(NOON) + 3
    assert tick_text(tick) == "2024-05-31 07:00:00.000500"
    assert tick_text(tick, date(2024, 5, 31)) == "07:00:00.000500"
    assert tick_text(tick, date(2024, 6, 1)) == "2024-05-31 07:00:00.000500"
    assert str(Knowledge.from_json({"latest": 80, "at": str(tick)}, 80)) == "80@2024-05-31 07:00:00.000500"
    earliest = Knowledge.from_json({"at_most": tick}, tick)
    assert earliest.text(ViewColumn("t", "time"), date(2024, 5, 31)) == "≤07:00:00.000500"
    assert str(earliest) == f"≤{tick}"  # nothing says that it is a tick


def test_ticks_of_publishers_are_numbers() -> None:
    assert [tick_text(tick) for tick in (0, 17, CLOCK_TICK_MIN - 1, 2**63 - 1)] == [
        "0", "17", str(CLOCK_TICK_MIN - 1), str(2**63 - 1)
    ]  # fmt: skip


def test_intervals_are_read_as_hours_minutes_and_seconds() -> None:
    second = 1_000_000 * TICKS_PER_MICROSECOND
    assert [interval_text(ticks) for ticks in (3, -1023, 90 * second, -second // 2, 86_400 * second)] == [
        "3", "-1023", "0:01:30", "-0:00:00.500000", "1 day, 0:00:00"
    ]  # fmt: skip


@pytest.mark.usefixtures("five_hours_behind_utc")
def test_a_change_as_text() -> None:
    columns = {"t": "time", "since": "interval", "late": "time", "n": "float"}
    schema = Schema.from_json({"subscribed": "V", "key": ["t"], "columns": columns, "streams": ["S"]})
    message = {
        "view": "V", "key": {"t": str(tick_of(NOON))}, "row": {"since": 90 * 1_024_000_000, "late": 17, "n": 2 / 3},
        "knowledge": {"n": {"unknown": True}}, "final": False, "steps": 1,
    }  # fmt: skip
    change = schema.decode_change(message)
    assert str(change) == "V t 2024-05-31 07:00:00.000500: since 0:01:30, late 17, n 0.666667~"


def test_times_in_data_frames() -> None:
    columns = {"t": "time", "seen": "time", "n": "int", "rows": "relation{u: time, v: int}"}
    schema = Schema.from_json({"subscribed": "V", "key": ["t"], "columns": columns, "streams": ["S"]})
    row = {"seen": None, "n": 5, "rows": [{"u": str(tick_of(NOON)), "v": 1}]}
    message = {
        "view": "V",
        "key": {"t": str(tick_of(NOON) + 7)},
        "row": row,
        "knowledge": {},
        "final": True,
        "steps": 1,
    }
    rows = Rows()
    rows.set_schema(schema)
    rows.deliver_frame(Frame([schema.decode_change(message)], {"S": 1}, reset=True))
    expected = {"t": NOON, "seen": None, "n": 5, "rows": [{"u": NOON, "v": 1}], "final": True}
    assert rows.to_arrow(times=True).to_pylist() == [expected]
    assert rows.to_polars(times=True).to_dicts() == [expected]
    frame = rows.to_pandas(times=True)
    assert str(frame["t"].dtype) == "datetime64[us, UTC]"
    assert frame["t"][0].to_pydatetime() == NOON
    assert rows.to_arrow().to_pylist()[0]["t"] == tick_of(NOON) + 7
