"""What goes from one partition to another: changes of relations, packed into one message."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from smile.columns.packed import Json, Packed, Packer
from smile.columns.values import Values
from smile.kernels.changes import Changes, Version, concat
from smile.kernels.layout import Layout
from smile.kernels.stored import MASK, STEPS, fixed_of, flat, version_of


class Outgoing:
    """A message in the making."""

    def __init__(self) -> None:
        self._packer = Packer()
        self._changes: list[Json] = []

    def add(self, name: Any, layout: Layout, changes: Changes) -> None:
        """`name` is what the receiver knows them by: any JSON."""
        told: Json = {"name": name, "count": len(changes)}
        told["new"] = self._packer.columns(flat(layout, changes.fixed, changes.new))
        if changes.old is not None:
            told["old"] = self._packer.columns(_old(layout, changes.fixed, changes.old))
        self._changes.append(told)

    def finish(self, head: Json) -> bytes:
        return self._packer.finish({"head": head, "changes": self._changes})


def _old(layout: Layout, fixed: Mapping[str, Values], old: Version) -> dict[str, Values]:
    """Without what is the same now, and where only the mask is told, with that alone."""
    if layout.evolving and not old.columns:
        return {MASK: Values(old.mask), STEPS: Values(old.steps)}
    return {name: c for name, c in flat(layout, fixed, old).items() if name[1:] not in layout.fixed}


class Incoming:
    """A message that came. Columns are read when they are asked for, without a copy."""

    def __init__(self, message: bytes | pa.Buffer) -> None:
        self._packed = Packed(pa.BufferReader(message))
        self.head: Json = self._packed.footer["head"]

    def changes(self, layouts: Mapping[str, Layout]) -> list[tuple[Any, Changes]]:
        """By their names; `layouts` are those of all relations, a name's first word being its relation's."""
        found = []
        for told in self._packed.footer["changes"]:
            name, count = told["name"], told["count"]
            layout = layouts[name[0]]
            new = self._packed.columns(told["new"], count)
            old = None
            if "old" in told:
                rows = self._packed.columns(told["old"], count)
                old = version_of(layout, rows) if not layout.evolving or len(rows) > 2 else _masks(rows)
            found.append((name, Changes(fixed_of(layout, new), old, version_of(layout, new))))
        return found


def _masks(rows: Mapping[str, Values]) -> Version:
    return Version({}, rows[MASK].data, rows[STEPS].data)


def gathered(layouts: Mapping[str, Layout], found: Sequence[tuple[Any, Changes]]) -> dict[Any, Changes]:
    """What came by one name from several partitions, as one."""
    parts: dict[Any, list[Changes]] = {}
    for name, changes in found:
        parts.setdefault(name, []).append(changes)
    return {name: concat(layouts[name[0]], of) for name, of in parts.items()}
