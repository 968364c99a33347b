"""Reads published events in a file in Parquet. The file is not trusted: what it becomes is known before it is read.

How large a page becomes is written in its header, and decompression fails if this is wrong. Two encodings make more of
a page than that. Text in dictionaries is read as such, and its expanded size is checked like that of other Arrow data.
DELTA_BYTE_ARRAY, which shares the beginnings of texts, is refused. See Parquet's parquet.thrift, and Thrift's compact
protocol.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from smile import limits
from smile.decoding.arrow_columns import check_columns, is_text, value_type
from smile.decoding.arrow_events import ARROW_PROBLEMS, check_limit, is_bytes, read_arrow_table
from smile.decoding.stream_schema import AbsentColumns, StreamSchema
from smile.errors import error

_VALUE_BYTES: Final = 16
"""A value of a fixed size has at most these; of a text, its offset or index."""
_DELTA_BYTE_ARRAY: Final = 7
_NESTING_MAX: Final = 8

# Fields of a page header, and of the headers within it.
_DECODED_BYTES, _STORED_BYTES = 2, 3
_ENCODING_FIELDS: Final = ((5, 2), (7, 2), (8, 4))
"""The header of each kind of page, and the field in it that has the encoding."""


def read_parquet_file(schema: StreamSchema, body: bytes, absent: AbsentColumns | None = None) -> pa.RecordBatch:
    try:
        sizes = {"thrift_string_size_limit": len(body), "thrift_container_size_limit": len(body)}
        with pq.ParquetFile(pa.BufferReader(body), **sizes) as file:
            metadata, columns = file.metadata, file.schema_arrow
        _check_columns(schema, columns)
        text_columns = [field.name for field in columns if is_text(value_type(field.type)) or is_bytes(field.type)]
        check_limit("events", metadata.num_rows, limits.publication_events_max)
        check_limit("bytes", _decoded_bytes(metadata, body), limits.publication_bytes_max)
        with pq.ParquetFile(pa.BufferReader(body), read_dictionary=text_columns, **sizes) as file:
            table = file.read(use_threads=False)
    except MemoryError:
        raise
    except (*ARROW_PROBLEMS, IndexError, RecursionError) as problem:
        first_line = next(iter(str(problem).splitlines()), "")
        raise error("E074", f"the events are not a file in Parquet: {first_line}") from None
    return read_arrow_table(schema, table, absent)


def _check_columns(schema: StreamSchema, columns: pa.Schema) -> None:
    tick = schema.stream.tick
    if tick not in columns.names and not schema.stream.publisher_timed:
        columns = columns.append(pa.field(tick, pa.int64()))
    check_columns("the events", schema, columns)


def _decoded_bytes(metadata: pq.FileMetaData, body: bytes) -> int:
    """How many bytes the file becomes at most, as long as texts in dictionaries are not expanded."""
    size: int = metadata.num_rows * metadata.num_columns * _VALUE_BYTES
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            size += _chunk_bytes(metadata.row_group(group).column(column), body)
            check_limit("bytes", size, limits.publication_bytes_max)
    return size


def _chunk_bytes(chunk: pq.ColumnChunkMetaData, body: bytes) -> int:
    """The size of the pages of a column after decompression."""
    position = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < position:
        position = chunk.dictionary_page_offset
    end: int = position + chunk.total_compressed_size
    size = 0
    if not 0 <= position <= end <= len(body):
        raise ValueError("a column is outside of the file")
    while position < end:
        reader = _CompactReader(body, position)
        header = reader.read_struct()
        decoded, stored = header.get(_DECODED_BYTES), header.get(_STORED_BYTES)
        if not isinstance(decoded, int) or not isinstance(stored, int) or decoded < 0 or stored < 0:
            raise ValueError("the header of a page has no sizes")
        kinds = [(header[kind], field) for kind, field in _ENCODING_FIELDS if kind in header]
        if not all(isinstance(kind, dict) for kind, _ in kinds):
            raise ValueError("the header of a page is malformed")
        if any(kind.get(field) == _DELTA_BYTE_ARRAY for kind, field in kinds):
            hint = "Write the file without the encoding DELTA_BYTE_ARRAY."
            raise error("E074", "the events have an encoding that may expand without limit", hint=hint)
        size += decoded
        position = reader.position + stored
    return size


class _CompactReader:
    """Reads structs of Thrift's compact protocol: the numbers and structs in them; anything else is None. Raises
    IndexError at the end of the data."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data, self.position = data, position

    def read_struct(self, depth: int = 0) -> dict[int, Any]:
        """The values by field."""
        if depth > _NESTING_MAX:
            raise ValueError("the header of a page is nested too deeply")
        fields, field = dict[int, Any](), 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._number()
            fields[field] = self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        match kind:
            case 1 | 2:  # a bool, which is in its head
                return None
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._number()
            case 7:
                self._skip(8)
            case 8:
                self._skip(self._unsigned())
            case 9 | 10:
                head = self._byte()
                for _ in range(head >> 4 if head >> 4 < 15 else self._unsigned()):
                    if head & 15 in (1, 2):
                        self._byte()
                    else:
                        self._value(head & 15, depth + 1)
            case 12:
                return self.read_struct(depth + 1)
            case _:
                raise ValueError("the header of a page is malformed")
        return None

    def _byte(self) -> int:
        byte = self._data[self.position]
        self.position += 1
        return byte

    def _skip(self, count: int) -> None:
        self.position += count
        if self.position > len(self._data):
            raise IndexError("the header of a page ends early")

    def _unsigned(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number in the header of a page is too long")
        return value | byte << shift

    def _number(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)
