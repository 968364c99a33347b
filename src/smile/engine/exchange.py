"""Encodes and decodes exchange messages: the deltas that one partition sends to another.

A decoded delta equals the encoded one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from smile.columns.packed import ColumnPacker, Json, PackedColumns
from smile.columns.values import ValueColumn
from smile.kernels.delta import Delta, RowKnowledge, concat_deltas
from smile.kernels.layout import Layout
from smile.kernels.row_encoding import MASK, STEPS, decode_fixed, decode_knowledge, encode_rows


class ExchangeMessageBuilder:
    """Collects deltas and encodes them as one message."""

    def __init__(self) -> None:
        self._packer = ColumnPacker()
        self._entries: list[Json] = []

    def add(self, name: Any, layout: Layout, delta: Delta) -> None:
        """`name` is a JSON array that identifies the delta for the receiver. Its first element names the relation."""
        entry: Json = {"name": name, "count": len(delta)}
        entry["new"] = self._packer.add_columns(encode_rows(layout, delta.fixed, delta.new))
        if delta.old is not None:
            entry["old"] = self._packer.add_columns(_old_columns(layout, delta.fixed, delta.old))
        self._entries.append(entry)

    def finish(self, header: Json) -> bytes:
        return self._packer.finish({"head": header, "changes": self._entries})


def _old_columns(layout: Layout, fixed: Mapping[str, ValueColumn], old: RowKnowledge) -> dict[str, ValueColumn]:
    """Omits the fixed columns, which the new rows already have. A delta that knows only old masks sends only those."""
    if layout.evolving and not old.columns:
        return {MASK: ValueColumn(old.mask), STEPS: ValueColumn(old.steps)}
    return {name: c for name, c in encode_rows(layout, fixed, old).items() if name[1:] not in layout.fixed}


class ExchangeMessage:
    """A received message. Columns are read on first use, without a copy."""

    def __init__(self, message: bytes | pa.Buffer) -> None:
        self._packed = PackedColumns(pa.BufferReader(message))
        self.header: Json = self._packed.footer["head"]

    def deltas(self, layouts: Mapping[str, Layout]) -> list[tuple[Any, Delta]]:
        """The deltas with their names. `layouts` holds the layout of every relation."""
        deltas = []
        for entry in self._packed.footer["changes"]:
            name, count = entry["name"], entry["count"]
            layout = layouts[name[0]]
            new = self._packed.lazy_columns(entry["new"], count)
            old = None
            if "old" in entry:
                old_columns = self._packed.lazy_columns(entry["old"], count)
                old = (
                    decode_knowledge(layout, old_columns)
                    if not layout.evolving or len(old_columns) > 2
                    else _masks_only(old_columns)
                )
            deltas.append((name, Delta(decode_fixed(layout, new), old, decode_knowledge(layout, new))))
        return deltas


def _masks_only(rows: Mapping[str, ValueColumn]) -> RowKnowledge:
    return RowKnowledge({}, rows[MASK].data, rows[STEPS].data)


def merge_deltas(layouts: Mapping[str, Layout], deltas: Sequence[tuple[Any, Delta]]) -> dict[Any, Delta]:
    """Concatenates the deltas that several partitions sent under the same name."""
    parts: dict[Any, list[Delta]] = {}
    for name, delta in deltas:
        parts.setdefault(name, []).append(delta)
    return {name: concat_deltas(layouts[name[0]], group) for name, group in parts.items()}
