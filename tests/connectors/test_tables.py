"""Tables in Parquet and Delta are equal to their views, whatever changes, and whenever the sink is interrupted."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from smile.broker.broker import Broker
from smile.broker.publishing.publication import Publication
from smile.broker.views.condition import ViewCondition
from smile.connectors.sinks.change_sink import ViewChanges
from smile.connectors.sinks.delta_table import DeltaViewTable
from smile.connectors.sinks.parquet_table import ParquetTable
from smile.connectors.sinks.table_rows import TableColumns, TableRows, newest_of_each_row
from tests.connectors.serving import publish, serving
from tests.processes import wait_until
from tests.repeatable import scaled


def view_rows(broker: Broker, view: str, with_knowledge: bool = False) -> list[str]:
    """What a table of the view must have now."""
    frame = broker.view(view).snapshot(ViewCondition())
    rows = TableRows(broker.view(view).source, TableColumns(with_knowledge, True)).shown_rows(
        ViewChanges([frame], True, None)
    )
    return sorted(repr(tuple(row.values())) for row in rows.to_pylist())


def table_rows(path: Path) -> list[str]:
    """What the table has."""
    return sorted(repr(tuple(row.values())) for row in read(path))


def sinks(folder: Path) -> dict[str, dict[str, Any]]:
    made = {}
    for view in ("Totals", "Large", "Popular"):
        for kind in ("parquet", "delta"):
            url = folder / (f"{view}.parquet" if kind == "parquet" else view)
            made[f"{view}_{kind}"] = {"kind": kind, "url": str(url), "view": view, "knowledge": view == "Totals"}
    return made


def wait_until_equal(broker: Broker, chosen: Mapping[str, Mapping[str, Any]], what: str) -> None:
    def are_equal() -> bool:
        return all(table_rows(Path(s["url"])) == view_rows(broker, s["view"], s["knowledge"]) for s in chosen.values())

    wait_until(are_equal, f"{what}: the tables are not equal to their views")


@pytest.mark.parametrize("seed", range(scaled(2)))
def test_tables_follow_their_views(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows appear, change and disappear, and the broker is restarted in between."""
    monkeypatch.setattr("smile.connectors.service.TABLE_PAUSE_S", 0.0)
    random, chosen = Random(seed), sinks(tmp_path / "out")
    (tmp_path / "out").mkdir()
    for start in range(2):
        with serving(tmp_path, sinks=chosen) as (broker, service):
            for step in range(5):
                events = [
                    (random.choice([*"abcdef", None]), random.randrange(250)) for _ in range(random.randrange(1, 12))
                ]
                publish(broker, *events)
                wait_until(lambda: broker.view("Totals").is_reached(broker.log_horizons), "the view")
                wait_until_equal(broker, chosen, f"seed {seed}, start {start}, step {step}")
            assert [t.message for t in service.troubles()] == []


def test_a_table_that_smile_has_not_made_is_left_alone(tmp_path: Path) -> None:
    chosen = sinks(tmp_path)
    pq.write_table(pa.table({"mine": [1]}), tmp_path / "Totals.parquet")
    from deltalake import write_deltalake  # noqa: PLC0415

    write_deltalake(str(tmp_path / "Totals"), pa.table({"mine": [1]}))
    with serving(tmp_path, sinks=chosen) as (broker, service):
        publish(broker, ("nail", 5))
        wait_until(lambda: len([t for t in service.troubles() if t.code == "E206"]) == 2, "two troubles")
    assert table_rows(tmp_path / "Totals.parquet") == table_rows(tmp_path / "Totals") == ["(1,)"]


def test_a_table_has_the_columns_of_its_view_after_a_change(tmp_path: Path) -> None:
    """With knowledge: bounds and finality. The table is made anew when the settings or the view change."""
    url = str(tmp_path / "t.parquet")
    plain = {"t": {"kind": "parquet", "url": url, "view": "Totals"}}
    with serving(tmp_path, sinks=plain) as (broker, _):
        publish(broker, ("nail", 5))
        wait_until(lambda: len(table_rows(Path(url))) == 1, "the row")
        assert pq.read_table(url).column_names == ["item", "orders", "total"]
    known = {"t": {**plain["t"], "knowledge": True}}
    with serving(tmp_path, sinks=known) as (_, service):
        wait_until(lambda: "row_final" in pq.read_table(url).column_names, "the new columns")
        (row,) = pq.read_table(url).to_pylist()
        assert row == {
            "item": "nail",
            "orders": 1,
            "orders_lower": 1,
            "orders_upper": row["orders_upper"],
            "orders_final": False,
            "total": 5,
            "total_lower": 5,
            "total_upper": None,
            "total_final": False,
            "row_final": False,
        }
        assert not service.troubles()


def test_the_newest_of_rows_with_equal_keys_counts() -> None:
    table = pa.table({"k": ["a", None, "b", None, "a"], "n": [1, 2, 3, 4, 5]})
    assert newest_of_each_row(table, ["k"]).to_pylist() == [
        {"k": "b", "n": 3},
        {"k": None, "n": 4},
        {"k": "a", "n": 5},
    ]
    assert newest_of_each_row(table, []).to_pylist() == [{"k": "a", "n": 5}]
    assert newest_of_each_row(table.slice(0, 0), ["k"]).num_rows == 0


def test_all_types_of_columns(tmp_path: Path) -> None:
    program = """
        CREATE STREAM S (t TIME KEY, "a b" int, f float, d decimal(10, 2), x bool, y bytes, w timestamp, z date, s string,
                         i interval);
        CREATE VIEW V AS SELECT "a b", f, d, x, y, w, z, s, i FROM S;
        CREATE VIEW G AS SELECT "a b", x, MAX(w) AS latest, AVG(f) AS mean, SUM(d) AS sum_d FROM S GROUP BY "a b", x;
        SUBSCRIBE V, G;
    """
    chosen = {
        f"{view}_{kind}": {
            "kind": kind,
            "url": str(tmp_path / (f"{view}.parquet" if kind == "parquet" else view)),
            "view": view,
            "knowledge": True,
        }
        for view in ("V", "G")
        for kind in ("parquet", "delta")
    }
    event = {
        "a b": 1,
        "f": 1.5,
        "d": "2.25",
        "x": True,
        "y": "\\x0001ff",
        "w": "2026-01-02T03:04:05",
        "z": "2026-01-02",
    }
    with serving(tmp_path, sinks=chosen, program=program) as (broker, service):
        for body in (f"[{json.dumps(event)},{{}}]", json.dumps({**event, "f": 2.5, "s": "é"}), "{}"):
            rows = broker.decoder.decode_json("S", body.encode())
            broker.publish(Publication("S", rows)).result(60)
            wait_until(lambda: broker.view("V").is_reached(broker.log_horizons), "the view")
            wait_until_equal(broker, chosen, body)
        assert [t.message for t in service.troubles()] == []
    for fields in (pq.read_schema(tmp_path / "V.parquet"), delta_schema(tmp_path / "V")):
        types = {field.name: str(field.type) for field in fields}
        assert types["w"] == "timestamp[us]" and types["z"] == "date32[day]" and types["i"] == "int64"
    row = pq.read_table(tmp_path / "G.parquet").to_pylist()[0]
    moment = datetime(2026, 1, 2, 3, 4, 5)
    assert row["latest"] == row["latest_lower"] == moment


TICKS = """
    CREATE STREAM S (t TIME KEY, k int, w timestamp) WITH (TICKS = PUBLISHER);
    CREATE VIEW W AS SELECT window_end, MAX(t) AS newest, LATEST(k) AS last FROM TUMBLE(S, t, INTERVAL '1' HOUR) GROUP BY window_end;
    CREATE VIEW E AS SELECT t, k FROM S;
    CREATE VIEW N AS SELECT k, GROUP(t, w) AS events FROM S GROUP BY k;
    SUBSCRIBE W, E, N;
"""


def delta_schema(path: Path) -> pa.Schema:
    return pa.schema(DeltaTable(str(path)).schema().to_arrow())


def test_ticks_are_times(tmp_path: Path) -> None:
    """Two events at the same microsecond stay two rows: a tick of the key has its number beside its time. Without
    `times`, and after it was changed, the table has the numbers."""
    hour = 3_600_000_000 * 1024
    ticks = [500_000 * hour, 500_000 * hour + 1, 500_000 * hour + 2048]
    chosen = {
        f"{view}{end}": {"kind": kind, "url": str(tmp_path / f"{view}{end}"), "view": view, "knowledge": view == "W"}
        for view in ("W", "E", "N")
        for kind, end in (("parquet", ".parquet"), ("delta", ""))
    }
    begin = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=500_000)
    times = [begin, begin, begin + timedelta(microseconds=2)]
    with serving(tmp_path, sinks=chosen, program=TICKS) as (broker, service):
        for n, tick in enumerate(ticks):  # one by one: the rows of the later ones are merged into the tables
            broker.publish(Publication("S", [(tick, n % 2, 1_000_000)])).result(60)
            wait_until(partial(have_rows, tmp_path, n + 1), "the rows")
        for end in ("", ".parquet"):
            wait_until(partial(have_times, tmp_path, end, times[2]), "the other tables")
            assert sorted(read(tmp_path / f"E{end}"), key=lambda row: row["t_tick"]) == [
                {"t": time, "t_tick": tick, "k": n % 2} for n, (tick, time) in enumerate(zip(ticks, times, strict=True))
            ]
            (window,) = read(tmp_path / f"W{end}")
            assert window["window_end"] == begin + timedelta(hours=1)
            assert window["window_end_tick"] == ticks[0] + hour
            assert (window["last"], window["last_at"], window["last_final"]) == (0, times[2], False)
            nested = {row["k"]: row["events"] for row in read(tmp_path / f"N{end}")}
            assert nested[1] == [{"t": begin, "w": datetime(1970, 1, 1, 0, 0, 1)}]
        assert [t.message for t in service.troubles()] == []
        for kind, end in ((ParquetTable, ".parquet"), (DeltaViewTable, "")):  # they go on after a restart
            assert kind(str(tmp_path / f"N{end}"), "N", TableColumns(False, True)).open(broker.view("N").source)
    for schema in (pq.read_schema(tmp_path / "E.parquet"), delta_schema(tmp_path / "E")):
        assert [str(field.type) for field in schema] == ["timestamp[us, tz=UTC]", "int64", "int64"]
    numbers = {name: {**fields, "times": False} for name, fields in chosen.items() if fields["view"] == "E"}
    with serving(tmp_path, sinks=numbers) as _:
        for end in ("", ".parquet"):
            wait_until(partial(has_numbers, tmp_path / f"E{end}"), "the table is written anew")
            assert sorted(row["t"] for row in read(tmp_path / f"E{end}")) == ticks


def have_rows(folder: Path, count: int) -> bool:
    return all(len(read(folder / f"E{end}")) == count for end in ("", ".parquet"))


def have_times(folder: Path, end: str, newest: datetime) -> bool:
    windows = read(folder / f"W{end}")
    return len(read(folder / f"N{end}")) == 2 and bool(windows) and windows[0]["newest"] == newest


def has_numbers(path: Path) -> bool:
    return "t_tick" not in read(path)[0]


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        # Read at once: the file may be replaced between two times that it is opened.
        table = pq.read_table(BytesIO(path.read_bytes())) if path.exists() else pa.table({})
    else:
        table = DeltaTable(str(path)).to_pyarrow_table() if DeltaTable.is_deltatable(str(path)) else pa.table({})
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
