"""Published files in Parquet: the same events as in Arrow, and nothing that expands without limit."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from smile import limits
from smile.decoding import parquet_events
from tests.decoding.test_decoder import DECODER
from tests.decoding.test_published_events import TIMED, ipc_stream, outcome
from tests.repeatable import scaled

EVENTS = pa.table({"issue": ["IBM", None, "IBM", "HP"] * 25, "price": list(range(100))})


def parquet(table: pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("with_dictionary", [False, True])
def test_a_file_has_the_events_of_an_arrow_stream(compression: str, version: str, with_dictionary: bool) -> None:
    body = parquet(
        EVENTS,
        compression=compression,
        data_page_version=version,
        use_dictionary=with_dictionary,
        row_group_size=30,
        data_page_size=100,
        write_statistics=with_dictionary,
    )
    (batch,) = EVENTS.combine_chunks().to_batches()
    assert DECODER.decode_parquet("Bids", body).equals(DECODER.decode_arrow("Bids", ipc_stream([batch])))


def test_publishers_give_ticks() -> None:
    body = parquet(pa.table({"bid": [7, 9], "issue": ["a", "b"], "price": [1, 2]}))
    assert TIMED.decode_parquet("Bids", body).column(0).to_pylist() == [7, 9]
    assert outcome(DECODER.decode_parquet, "Bids", body) == "E077"


@pytest.mark.parametrize(
    ("table", "code"),
    [
        (pa.table({"isue": ["a"]}), "E077"),
        (pa.table({"price": ["a"]}), "E078"),
        (pa.table({"price": [[1]]}), "E078"),
        (pa.table({"price": [{"a": 1}]}), "E078"),
    ],
)
def test_columns_that_do_not_fit(table: pa.Table, code: str) -> None:
    assert outcome(DECODER.decode_parquet, "Bids", parquet(table)) == code


def test_what_would_become_too_large_is_refused_before_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "publication_bytes_max", 2**20)
    repeated = parquet(pa.table({"issue": ["x" * 10_000] * 2_000}), compression="zstd")  # text in a dictionary
    distinct = pa.table({"issue": ["x" * 10_000 + str(n) for n in range(400)]})
    packed = parquet(distinct, compression="zstd", use_dictionary=False, write_statistics=False)
    deltas = parquet(distinct, use_dictionary=False, column_encoding={"issue": "DELTA_BYTE_ARRAY"}, compression="zstd")
    assert max(map(len, (repeated, packed, deltas))) < 2**16
    read = list[object]()
    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetFile, "read", lambda self, **_: read.append(self))
        assert outcome(DECODER.decode_parquet, "Bids", packed) == "E092"
        assert outcome(DECODER.decode_parquet, "Bids", deltas) == "E074"
        assert read == []
    assert outcome(DECODER.decode_parquet, "Bids", repeated) == "E092"
    monkeypatch.setattr(limits, "publication_events_max", 99)
    assert outcome(DECODER.decode_parquet, "Bids", parquet(EVENTS)) == "E092"


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_have_the_sizes_that_the_metadata_has(version: str) -> None:
    """The sizes of all pages, from their headers, are what Arrow has written, except for the headers."""
    body = parquet(EVENTS, compression="none", data_page_version=version, data_page_size=100)
    metadata = pq.read_metadata(io.BytesIO(body))
    for column in range(metadata.num_columns):
        chunk = metadata.row_group(0).column(column)
        size = parquet_events._chunk_bytes(chunk, body)
        assert 0 < size < chunk.total_uncompressed_size <= size + 2_000


BODY = parquet(EVENTS, compression="snappy", row_group_size=40)


@settings(max_examples=scaled(500))
@given(position=st.integers(0, len(BODY) - 1), change=st.integers(1, 255), end=st.integers(0, len(BODY)) | st.none())
def test_no_damage_makes_the_reader_crash(position: int, change: int, end: int | None) -> None:
    body = bytearray(BODY)
    body[position] ^= change
    result = outcome(DECODER.decode_parquet, "Bids", bytes(body[:end]))
    assert isinstance(result, pa.RecordBatch) or result in ("E074", "E077", "E078", "E092"), result


@settings(max_examples=scaled(500))
@given(st.binary(max_size=60))
def test_any_header_of_a_page_is_read_or_refused(header: bytes) -> None:
    reader = parquet_events._CompactReader(header, 0)
    try:
        fields = reader.read_struct()
    except (ValueError, IndexError):
        return
    assert reader.position <= len(header)
    assert all(value is None or isinstance(value, int | dict) for value in fields.values())
