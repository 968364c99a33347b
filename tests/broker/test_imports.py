"""Frames and ranges between two brokers, without a network: what is new is appended once, and a gap is noticed."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema
from smile.algebra.parser import parse_expression
from smile.analysis.export_description import describe_export, read_definition
from smile.broker.imports.exported_stream import ExportedStream
from smile.broker.imports.import_frame import FrameAssembly, FramePart, ImportFrame
from smile.broker.imports.receipt import Receipt
from smile.broker.imports.stream_cache import StreamCache
from smile.broker.imports.view_cache import ViewCache
from smile.errors import SmileError
from smile.kernels.compile import compile_export
from smile.kernels.row_blocks import _block_schema
from smile.log.position import BatchLimit
from smile.log.storage import durable
from smile.log.storage.durable import DurableLog
from smile.log.storage.pieces import StreamPiece
from smile.program import compile_program
from smile.source import Source
from tests.repeatable import scaled

PROGRAM = """
CREATE STREAM S (t: time -> k: string, v: int);
CREATE VIEW Sums AS SELECT k, SUM(v) AS s FROM S GROUP BY k;
SUBSCRIBE Sums;
"""
EXPORTING = compile_program(Source("p.smile", PROGRAM)).rewritten


def import_of(relation: str, condition: str | None = None) -> mmpl.ImportDef:
    definition = read_definition(describe_export(EXPORTING, relation), relation)
    return mmpl.ImportDef("I", "b", relation, None if condition is None else parse_expression(condition), definition)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[list[DurableLog]]:
    opened: list[DurableLog] = []
    yield opened
    for log in opened:
        log.close()


def open_log(path: Path, streams: tuple[mmpl.StreamDef, ...], logs: list[DurableLog]) -> DurableLog:
    log = DurableLog.open_or_create(str(path), streams, flush=False)
    logs.append(log)
    return log


# ── views ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def stream_cache(import_: mmpl.ImportDef, log: DurableLog) -> StreamCache:
    assert import_.stream is not None
    return StreamCache(import_.name, import_.stream, import_.brokers, log)


def view_cache(tmp_path: Path, logs: list[DurableLog]) -> ViewCache:
    import_ = import_of("Sums")
    log = open_log(tmp_path / "log", import_.log_streams, logs)
    return ViewCache(import_, compile_export(import_).inputs["Sums"].layout, log)


def test_frames_continue_one_another(tmp_path: Path, logs: list[DurableLog]) -> None:
    cache = view_cache(tmp_path, logs)
    assert cache.append(ImportFrame({"S": 3}, (), {"S": 5})) is Receipt.GAP
    first = ImportFrame(None, (), {"S": 5})
    assert cache.append(first) is Receipt.APPENDED
    assert cache.append(first) is Receipt.REDUNDANT
    assert cache.append(ImportFrame({"S": 7}, (), {"S": 9})) is Receipt.GAP
    assert cache.append(ImportFrame({"S": 5}, (), {"S": 9})) is Receipt.APPENDED
    assert cache.append(ImportFrame({"S": 3}, (), {"S": 8})) is Receipt.REDUNDANT
    assert cache.append(ImportFrame({"S": 3}, (), {"S": 11})) is Receipt.APPENDED
    assert cache.horizons == {"S": 11} and cache.frames == 3
    assert view_cache(tmp_path, logs).horizons == {"S": 11}  # after a restart


def test_a_frame_is_one_commit_however_large(
    tmp_path: Path, logs: list[DurableLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "COMMIT_ROWS_MAX", 2)
    cache = view_cache(tmp_path, logs)
    monkeypatch.setattr(ViewCache, "_check_block", lambda _cache, _block: 1)
    cache.append(ImportFrame(None, (b"1", b"2", b"3", b"4", b"5"), {"S": 5}))
    log = logs[0]
    end = log.after(log.start(), BatchLimit(rows=1))
    assert end.stream_horizons() == {"I//changes": 5, "I//resets": 0, "I/S": 5}
    assert log.read("I//changes", log.start(), end).column(1).to_pylist() == [b"1", b"2", b"3", b"4", b"5"]


def test_wrong_frames_are_refused(tmp_path: Path, logs: list[DurableLog]) -> None:
    cache = view_cache(tmp_path, logs)
    for frame in (ImportFrame(None, (b"nonsense",), {"S": 5}), ImportFrame(None, (), {"R": 5})):
        with pytest.raises(SmileError) as refusal:
            cache.append(frame)
        assert refusal.value.diagnostics[0].code == "E125"
    assert cache.horizons == {"S": -1}


def compressed(batch: pa.RecordBatch) -> bytes:
    """The message of a batch, as a neighbour may send it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages.read_next_message()  # the schema
    return bytes(messages.read_next_message().serialize())


def zeros(schema: pa.Schema, count: int) -> pa.RecordBatch:
    """Rows that a few bytes compress."""
    arrays = [pa.array(np.zeros(count), pa.float64()).cast(pa.int64()).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def test_compressed_rows_are_refused_before_they_are_decompressed(
    tmp_path: Path, logs: list[DurableLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smile.limits.publication_bytes_max", 1_000_000)
    cache = view_cache(tmp_path, logs)
    schema = _block_schema(cache._layout, is_wide=False)
    stream = stream_cache(import_of("S"), open_log(tmp_path / "other", import_of("S").log_streams, logs))
    assert cache.check(ImportFrame(None, (b"\0" + compressed(zeros(schema, 100)),), {"S": 5})) == 100
    monkeypatch.setattr(pa.ipc, "read_record_batch", _no_reading)
    block = b"\0" + compressed(zeros(schema, 200_000))
    body = compressed(zeros(stream_schema(EXPORTING.streams[0]), 200_000))
    assert len(block) < 1_000_000 and len(body) < 1_000_000
    for decode in (
        partial(cache.check, ImportFrame(None, (block,), {"S": 5})),
        partial(stream.decode, "1", -1, 5, body),
    ):
        with pytest.raises(SmileError, match="at most 1,000,000 are allowed") as refusal:
            decode()
        assert refusal.value.diagnostics[0].code == "E125"


def _no_reading(*_: object) -> None:
    raise AssertionError("it is decoded")


def damaged(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.randrange(1, 6)):
        changed[random.randrange(len(changed))] = random.choice([0, 1, 127, 128, 255, random.randrange(256)])
    return bytes(changed[: random.choice([None, None, random.randrange(len(changed))])])


@pytest.mark.parametrize("seed", range(scaled(60)))
def test_damaged_bodies_are_refused_or_decoded(tmp_path: Path, logs: list[DurableLog], seed: int) -> None:
    """Whatever a neighbour sends: E125, or valid rows."""
    random = Random(seed)
    cache = view_cache(tmp_path, logs)
    stream = stream_cache(import_of("S"), open_log(tmp_path / "other", import_of("S").log_streams, logs))
    events = piece(-1, 9, 1, 5, 7).events
    assert events is not None
    batch = zeros(_block_schema(cache._layout, is_wide=False), 3)
    for _ in range(10):
        block = damaged(random, b"\0" + random.choice([compressed(batch), bytes(batch.serialize())]))
        body = damaged(random, random.choice([compressed(events), bytes(events.serialize())]))
        for decode in (
            partial(cache.check, ImportFrame(None, (block,), {"S": 5})),
            partial(stream.decode, "1", -1, 9, body),
        ):
            codes = ["E125"]
            try:
                decode()
            except SmileError as refusal:
                codes = [diagnostic.code for diagnostic in refusal.diagnostics]
            assert codes == ["E125"]


def test_parts_make_frames() -> None:
    assembly = FrameAssembly()
    start, end = {"S": 1}, {"S": 2}
    assert assembly.add(FramePart(start, b"1", False, None)) is None
    assert assembly.add(FramePart(start, b"2", False, end)) == ImportFrame(start, (b"1", b"2"), end)
    assert assembly.add(FramePart(end, b"3", False, None)) is None
    assert assembly.add(FramePart(end, b"4", True, None)) is None  # the view begins again
    assert assembly.add(FramePart(end, None, False, {"S": 3})) == ImportFrame(None, (b"4",), {"S": 3})
    assert assembly.add(FramePart({"S": 3}, None, False, {"S": 4})) == ImportFrame({"S": 3}, (), {"S": 4})


# ── streams ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def piece(lo: int, hi: int, *ticks: int, origin: str = "1") -> StreamPiece:
    stream = EXPORTING.streams[0]
    rows = [{"t": t, "k": "ab"[t % 2], "v": t} for t in ticks]
    return StreamPiece("S", origin, lo, hi, pa.RecordBatch.from_pylist(rows, stream_schema(stream)) if rows else None)


def ticks(found: StreamPiece | None) -> list[int]:
    return [] if found is None or found.events is None else found.events.column(0).to_pylist()


def test_ranges_are_read_and_appended_once(tmp_path: Path, logs: list[DurableLog]) -> None:
    exporting = open_log(tmp_path / "exporting", EXPORTING.log_streams, logs)
    import_ = import_of("S", "k = 'b'")
    cache = stream_cache(import_, open_log(tmp_path / "importing", import_.log_streams, logs))
    export = ExportedStream(exporting, EXPORTING.streams[0], import_.condition)
    assert export.read_range("1", -1, 100) is None
    for lo, hi, *at in ((-1, 3, 1, 2, 3), (3, 6), (6, 9, 7, 8)):
        exporting.append([piece(lo, hi, *at)])
    whole = export.read_range("1", -1, 10**6)
    assert whole is not None and (whole.lo, whole.hi, ticks(whole)) == (-1, 9, [1, 3, 7])
    later = export.read_range("1", 2, 10**6)
    assert later is not None and (later.lo, later.hi, ticks(later)) == (2, 9, [3, 7])
    small = export.read_range("1", -1, 1)
    assert small is not None and small.hi == 3
    assert export.read_range("1", 9, 100) is None and export.horizons() == {"1": 9}

    def append(found: StreamPiece) -> Receipt:
        return cache.append(found.origin, found.lo, found.hi, found.events)

    assert append(later) is Receipt.GAP
    assert append(small) is Receipt.APPENDED
    assert append(whole) is Receipt.APPENDED and append(later) is Receipt.REDUNDANT
    assert cache.horizons == {"1": 9} and cache.events == 3
    log = logs[1]
    assert log.read("I", log.start(), log.newest()).column(0).to_pylist() == [1, 3, 7]
    assert stream_cache(import_, log).horizons == {"1": 9}


def test_what_was_removed_is_gone(tmp_path: Path, logs: list[DurableLog]) -> None:
    exporting = open_log(tmp_path / "exporting", EXPORTING.log_streams, logs)
    for lo, hi, *at in ((-1, 3, 1), (3, 6, 5)):
        exporting.append([piece(lo, hi, *at)])
    exporting.truncate({"S": 3})
    export = ExportedStream(exporting, EXPORTING.streams[0], None)
    with pytest.raises(SmileError) as gone:
        export.read_range("1", 2, 100)
    assert gone.value.diagnostics[0].code == "E097"
    assert ticks(export.read_range("1", 3, 100)) == [5]
