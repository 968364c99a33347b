"""Checkpoints of tables: the rows as of a tick, in a file for each table. So the log need not keep older changes."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from smile.algebra import mmpl
from smile.broker.directory import write_file
from smile.broker.subscriptions.matching.table_history import Row, table_columns
from smile.errors import error


@dataclass(frozen=True)
class TableCheckpoint:
    """`rows` has the rows as of the tick `floor`, and how often each was inserted more than deleted. `history`
    identifies the logs that the ticks belong to."""

    history: str
    floor: int
    rows: Mapping[Row, int]


class TableCheckpoints:
    """The files are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, stream: mmpl.StreamDef) -> TableCheckpoint | None:
        """None if there is none."""
        path, columns = self._path(stream), table_columns(stream)
        try:
            crc, _, text = path.read_text("utf-8").partition("\n")
            if int(crc) != zlib.crc32(text.encode()):
                raise ValueError("its checksum is wrong")
            fields: Any = json.loads(text)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise error("E105", f"{path} cannot be read: {problem.strerror}") from None
        except ValueError as problem:
            raise error("E105", f"{path} is damaged: {problem}", hint="Restore a backup of it.") from None
        if fields["columns"] != {name: str(data) for name, data in columns.items()}:
            raise error("E105", f"{path} has other columns than {stream.name}", hint="Restore a backup of it.")
        is_bytes = [data.name == "bytes" for data in columns.values()]
        rows = {
            tuple(bytes.fromhex(v) if b and v is not None else v for v, b in zip(row, is_bytes, strict=True)): count
            for row, count in fields["rows"]
        }
        return TableCheckpoint(fields["history"], fields["floor"], rows)

    def write(self, stream: mmpl.StreamDef, checkpoint: TableCheckpoint) -> None:
        """Returns when it is on the disk."""
        rows = [
            ([v.hex() if isinstance(v, bytes) else v for v in row], count) for row, count in checkpoint.rows.items()
        ]
        columns = {name: str(data) for name, data in table_columns(stream).items()}
        fields = {"history": checkpoint.history, "floor": checkpoint.floor, "columns": columns, "rows": rows}
        text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
        self._folder.mkdir(exist_ok=True)
        write_file(self._path(stream), f"{zlib.crc32(text.encode())}\n{text}")

    def _path(self, stream: mmpl.StreamDef) -> Path:
        return self._folder / f"{quote(stream.name, safe='')}.json"
