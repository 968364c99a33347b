"""Runs queries over random tables in PostgreSQL and over streams of the same rows, to their end, and compares the rows."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import msgspec
import psycopg

from smile.algebra import mmpl
from smile.algebra.arrays import decode_array
from smile.algebra.types import TICKS_PER_MICROSECOND, DataType
from smile.encoding.json_changes import json_changes
from smile.engine.plan import build_plan
from smile.errors import Diagnostic, SmileError
from smile.knowledge.values.json import plain_json
from smile.log.input_batch import InputBatch
from smile.program import CompiledProgram, compile_program
from smile.reference.history import History, WrittenFloat
from smile.reference.wire import final_rows
from smile.source import Source
from tests.engine.partitions import Partitions
from tests.kernels.harness import input_batch_between
from tests.sql.queries import COLUMNS, DOCUMENTS, JSON_COLUMNS, KEYED_COLUMNS, TEXTS, TICKS, Query

Value = Any  # a value of PostgreSQL or of SMILE, of whatever type the query has
Rows = Counter[tuple[Value, ...]]
Tables = Mapping[str, Sequence[Mapping[str, Value]]]

STREAM_TYPES = {
    "tick": "time",
    "text": "string",
    "int": "int",
    "float": "float",
    "decimal": "decimal(10, 2)",
    "bool": "bool",
    "timestamp": "timestamp",
    "json": "json",
}
TABLE_TYPES = {
    "tick": "bigint", "text": "text", "int": "bigint", "float": "double precision", "decimal": "decimal(10, 2)",
    "bool": "boolean", "timestamp": "timestamp", "json": "jsonb",
}  # fmt: skip


def streams() -> str:
    declared = []
    for table, columns in {**COLUMNS, **JSON_COLUMNS}.items():
        others = ", ".join(f"{c}: {STREAM_TYPES[kind]}" for c, kind in columns.items() if kind != "tick")
        declared.append(f"CREATE STREAM {table} ({TICKS[table]}: time -> {others});\n")
    for table, columns in KEYED_COLUMNS.items():
        key, *values = (f"{c} {STREAM_TYPES[kind]}" for c, kind in columns.items())
        declared.append(f"CREATE TABLE {table} ({', '.join((f'{key} PRIMARY KEY', *values))});\n")
    return "".join(declared)


MOMENTS = (
    "2023-12-31 23:59:59.25",
    "2024-01-01 00:00:00",
    "2024-02-29 12:30:00",
    "2024-02-29 12:44:59.5",
    "1969-07-20 20:17:40",
)

# ── tables ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def random_tables(random: Random, rows_max: int = 6) -> Tables:
    values: dict[str, Sequence[Value]] = {
        "text": (*TEXTS, None), "int": (0, 1, 2, 3, None), "float": (0.5, -1.25, 3.0, None),
        "decimal": (Decimal("1.50"), Decimal("-0.25"), None), "bool": (True, False, None), "timestamp": (*MOMENTS, None),
        "json": (*DOCUMENTS, None),
    }  # fmt: skip
    streams = {
        table: [
            {c: tick if kind == "tick" else random.choice(values[kind]) for c, kind in columns.items()}
            for tick in sorted(random.sample(range(1, 10), random.randint(0, rows_max)))
        ]
        for table, columns in {**COLUMNS, **JSON_COLUMNS}.items()
    }
    keyed = {
        table: [
            {**{c: random.choice(values[kind]) for c, kind in columns.items()}, next(iter(columns)): key}
            for key in random.sample(TEXTS, random.randint(0, len(TEXTS)))
        ]
        for table, columns in KEYED_COLUMNS.items()
    }
    return {**streams, **keyed}


def events_of(tables: Tables) -> list[dict[str, Value]]:
    events = [
        {
            "stream": table,
            "at": row[tick],
            "event": {
                c: json.loads(v, parse_float=WrittenFloat) if c == "j" and v else _json(v)
                for c, v in row.items()
                if c != tick
            },
        }
        for table, tick in TICKS.items()
        for row in tables[table]
    ]
    for table in KEYED_COLUMNS:
        changes = _changes_of(table, tables[table])
        events += [{"stream": table, "at": at, "event": change} for at, change in enumerate(changes, 1)]
    return sorted(events, key=lambda event: event["at"])


def _changes_of(table: str, rows: Sequence[Mapping[str, Value]]) -> list[dict[str, Value]]:
    """Changes after which the table has these rows: others were there before, and some are inserted, updated or deleted
    more than once."""
    random, (key, *_) = Random(repr(rows)), KEYED_COLUMNS[table]
    changes = [{key: text, "n": random.randint(0, 3)} for text in TEXTS if random.random() < 0.7]
    final = [{**row, "change": random.choice((None, "insert", "update"))} for row in rows]
    present = {row[key] for row in rows}
    final += [{key: text, "change": "delete"} for text in TEXTS if text not in present]
    random.shuffle(final)
    return changes + final


def _json(value: Value) -> Value:
    return str(value) if isinstance(value, Decimal) else value


def create_tables(connection: psycopg.Connection[Any], tables: Tables) -> None:
    for table, columns in {**COLUMNS, **JSON_COLUMNS, **KEYED_COLUMNS}.items():
        connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.execute(f"CREATE TABLE {table} ({', '.join(f'{c} {TABLE_TYPES[k]}' for c, k in columns.items())})")
        for row in tables[table]:
            marks = ", ".join(["%s"] * len(columns))
            connection.execute(f"INSERT INTO {table} VALUES ({marks})", [row[c] for c in columns])


# ── results ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def comparable(value: Value) -> Value:
    """Numbers are compared by nine digits: the types of averages and deviations differ. Times are texts, and intervals
    numbers of ticks, as in JSON."""
    if isinstance(value, timedelta):
        value = value // timedelta(microseconds=1) * TICKS_PER_MICROSECOND
    if isinstance(value, datetime):
        fraction = f"{value.microsecond:06}".rstrip("0")
        return f"{value:%Y-%m-%d %H:%M:%S}{fraction and '.'}{fraction}"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return float(f"{float(value):.9g}") + 0.0
    if isinstance(value, list):
        return tuple(map(comparable, value))
    return value


def postgres_rows(connection: psycopg.Connection[Any], query: str) -> Rows:
    return Counter(tuple(map(comparable, row)) for row in connection.execute(query).fetchall())


def refusal(query: Query) -> Diagnostic | None:
    """The first error of the query; None if it is accepted."""
    try:
        compile_query_program([query])
    except SmileError as problem:
        return problem.diagnostics[0]
    return None


def compile_query_program(queries: Sequence[Query]) -> CompiledProgram:
    views = [f"CREATE VIEW V{i} AS {query.text};\n" for i, query in enumerate(queries)]
    subscriptions = ", ".join(f"V{i}" for i in range(len(queries)))
    return compile_program(Source("queries.smile", f"{streams()}{''.join(views)}SUBSCRIBE {subscriptions};"))


@dataclass(frozen=True)
class Results:
    """The rows of each query, from the reference and from the engine, and those that the engine shows after the first
    `halfway` events."""

    reference: list[Rows]
    engine: list[Rows]
    halfway: int
    engine_halfway: list[Rows]


def smile_rows(queries: Sequence[Query], events: Sequence[Any], random: Random) -> Results:
    compiled = compile_query_program(queries)
    final = final_rows(compiled.original, events)
    headings = [compiled.analysis.relations[f"V{i}"].heading.columns for i in range(len(queries))]
    reference = [
        _counted((_plain(v, columns[c]) for c, v in row.items()) for row in final[f"V{i}"].values())
        for i, columns in enumerate(headings)
    ]
    snapshots = list(_snapshots(compiled, events, random))
    halfway, shown_halfway = snapshots[len(snapshots) // 2]
    _, shown = snapshots[-1]
    views = [f"V{i}" for i in range(len(queries))]
    return Results(reference, [shown[v] for v in views], halfway, [shown_halfway[v] for v in views])


def shown_rows(compiled: CompiledProgram, events: Sequence[Any], random: Random) -> dict[str, Rows]:
    """What a subscriber of each view has in the end, of a run in up to three partitions, cut into batches anywhere."""
    *_, (_, shown) = _snapshots(compiled, events, random)
    return shown


def _snapshots(
    compiled: CompiledProgram, events: Sequence[Any], random: Random
) -> Iterator[tuple[int, dict[str, Rows]]]:
    """After each batch, the number of events so far and what is shown."""
    program = compiled.rewritten
    plan = build_plan(compiled.graph, program.streams, random.randint(1, 3))
    partitions = Partitions(plan, random)
    shown: dict[str, dict[str, dict[str, Value]]] = {view: {} for view in program.subscriptions}
    columns = {view: compiled.analysis.relations[view].heading for view in shown}
    cuts = _random_cuts(events, random)
    for stop, batch in zip((*cuts, len(events)), _batches(program, events, cuts), strict=True):
        result = partitions.advance(batch)
        for view, delta in result.deltas.items():
            for message in json_changes(plan.kernels.inputs[view], delta, result.horizons) if view in shown else ():
                key = msgspec.json.encode(message["key"]).decode()
                shown[view].pop(key, None)
                if not message.get("deleted"):
                    shown[view][key] = {**message["key"], **message["row"]}
        yield (
            stop,
            {
                view: _counted(
                    (_typed(row[c], columns[view].columns[c].name) for c in columns[view].visible)
                    for row in rows.values()
                )
                for view, rows in shown.items()
            },
        )


def random_batches(program: mmpl.Program, events: Sequence[Any], random: Random) -> Iterable[InputBatch]:
    return _batches(program, events, _random_cuts(events, random))


def _random_cuts(events: Sequence[Any], random: Random) -> list[int]:
    """The numbers of events after which a batch ends."""
    cuts = sorted(random.sample(range(1, len(events)), min(3, max(len(events) - 1, 0))))
    return [*cuts, *([len(events)] if events else [])]


def _batches(program: mmpl.Program, events: Sequence[Any], cuts: Sequence[int]) -> Iterator[InputBatch]:
    """The batches up to the cuts, and the end of all streams."""
    before = History.from_lines(program)
    for stop in cuts:
        after = History.from_lines(program, events[:stop])
        yield input_batch_between(program, before, after)
        before = after
    yield input_batch_between(program, before, before.with_finished_streams())


def _plain(value: Value, data: DataType) -> Value:
    if data.name == "array":
        return None if value is None else decode_array(value, data.element)
    return _typed(plain_json(value, data), data.name)


def _typed(value: Value, type_name: str) -> Value:
    """Decimals and great ticks are texts in JSON."""
    return float(value) if type_name in ("decimal", "time", "interval", "int", "float") and value is not None else value


def _counted(rows: Iterable[Iterable[Value]]) -> Rows:
    return Counter(tuple(map(comparable, row)) for row in rows)


# ── comparison ──────────────────────────────────────────────────────────────────────────────────────────────────────

BATCH_SIZE = 25
"""The queries of one program, over the same tables."""


def differences(connection: psycopg.Connection[Any], accepted: Sequence[Query], seed: int) -> list[tuple[Query, str]]:
    """The queries whose rows differ from those of PostgreSQL in the end, or after a part of the events, each with what
    differs."""
    found: dict[Query, str] = {}
    for first in range(0, len(accepted), BATCH_SIZE):
        batch, random = accepted[first : first + BATCH_SIZE], Random(f"{seed} {first}")
        tables = random_tables(random)
        events = events_of(tables)
        results = smile_rows(batch, events, random)
        for name, contents, actual in (
            ("halfway", _contents_after(tables, events[: results.halfway]), results.engine_halfway),
            ("reference", tables, results.reference),
            ("engine", tables, results.engine),
        ):
            create_tables(connection, contents)
            for query, rows in zip(batch, actual, strict=True):
                expected = postgres_rows(connection, query.postgres or query.text)
                if rows != expected:
                    found.setdefault(query, f"{name}: {dict(rows - expected)}, PostgreSQL: {dict(expected - rows)}")
    return list(found.items())


def _contents_after(tables: Tables, events: Sequence[Any]) -> Tables:
    """What the tables have after some of the events."""
    contents: dict[str, list[Mapping[str, Value]]] = {
        table: [row for row in tables[table] if any(e["stream"] == table and e["at"] == row[tick] for e in events)]
        for table, tick in TICKS.items()
    }
    for table, columns in KEYED_COLUMNS.items():
        rows: dict[Value, dict[str, Value]] = {}
        key = next(iter(columns))
        for event in (e["event"] for e in events if e["stream"] == table):
            rows.pop(event[key], None)
            if event.get("change") != "delete":
                rows[event[key]] = {c: event.get(c) for c in columns}
        contents[table] = list(rows.values())
    return contents
