"""Changes of a view. A change is the whole present knowledge of one row, so the last change of a row replaces all
earlier ones."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from types import MappingProxyType
from typing import Any

from smile.client.knowledge import Knowledge
from smile.client.value_text import value_text
from smile.client.values import ViewColumn, decode_row, encode_row, tick_json
from smile.errors import error

Key = tuple[Any, ...]
Json = dict[str, Any]


@dataclass(frozen=True)
class Schema:
    """The schema of a view: its key, its columns by name, and the streams it is computed from."""

    view: str
    key: tuple[str, ...]
    columns: Mapping[str, ViewColumn]
    streams: tuple[str, ...]

    @staticmethod
    def from_json(message: Json) -> "Schema":
        columns = {name: ViewColumn.from_type(name, type_) for name, type_ in message["columns"].items()}
        return Schema(message["subscribed"], tuple(message["key"]), columns, tuple(message["streams"]))

    def identity(self, key: Sequence[Any]) -> Key:
        """Identifies the row with these values of the key columns."""
        if not self._has_json_key:
            return tuple(key)
        named = zip(self.key, key, strict=False)
        return tuple([self.columns[n].identity(v) if n in self.columns else v for n, v in named])

    @cached_property
    def _has_json_key(self) -> bool:
        return any(name in self.columns and self.columns[name].kind == "json" for name in self.key)

    def decode_change(self, message: Json) -> "Change":
        key = decode_row(self.columns, message["key"])
        if message.get("deleted"):
            return Change(self, key, final=message["final"], deleted=True, steps=message["steps"])
        row = decode_row(self.columns, message["row"])
        columns = self.columns
        knowledge = {n: Knowledge.from_json(k, row.get(n), columns[n]) for n, k in message["knowledge"].items()}
        final: bool = message["final"]
        return Change(self, key, row, knowledge, final, stays=final or "stays" in message, steps=message["steps"])


@dataclass(frozen=True, slots=True)
class Change:
    """The present knowledge of a row. `row` has the current values of all columns outside the key, `knowledge` the
    knowledge of the evolving columns. `final`: the row will not change any more. `stays`: it is permanently shown.
    `deleted`: it is hidden. `steps` is the number of events that it has absorbed."""

    schema: Schema = field(repr=False, compare=False)
    key: Mapping[str, Any]
    row: Mapping[str, Any] = field(default_factory=dict)
    knowledge: Mapping[str, Knowledge] = field(default_factory=dict)
    final: bool = False
    deleted: bool = False
    stays: bool = False
    steps: int = 0

    def __getitem__(self, column: str) -> Knowledge:
        """The knowledge of a column. A column that does not evolve is final."""
        if column in self.knowledge:
            return self.knowledge[column]
        return Knowledge.exactly(self.row[column] if column in self.row else self.key[column])

    @property
    def values(self) -> dict[str, Any]:
        """The current values of all columns, including the key."""
        return {**self.key, **self.row}

    @property
    def id(self) -> Key:
        """The values of the key columns, in order; of a column of JSON, its text."""
        return self.schema.identity([self.key[name] for name in self.schema.key])

    def __str__(self) -> str:
        key = ", ".join(f"{name} {self.column_text(name)}" for name in self.key)
        row_text = "deleted" if self.deleted else ", ".join(f"{name} {self.column_text(name)}" for name in self.row)
        return f"{self.schema.view} {key}: {row_text}{' (final)' if self.final else ''}"

    def column_text(self, name: str, today: date | None = None) -> str:
        """A column for people: its knowledge, or just its value if it cannot evolve."""
        column = self.schema.columns.get(name)
        if name in self.knowledge:
            return self.knowledge[name].text(column, today)
        return value_text(self.row[name] if name in self.row else self.key[name], column, today)

    def to_json(self) -> Json:
        """The change as the broker sends it."""
        columns = self.schema.columns
        message: Json = {"view": self.schema.view, "key": encode_row(columns, self.key)}
        if self.deleted:
            return {**message, "deleted": True, "final": self.final, "steps": self.steps}
        message["row"] = encode_row(columns, self.row)
        message["knowledge"] = {name: known.to_json(columns[name]) for name, known in self.knowledge.items()}
        message["final"] = self.final
        if self.stays and not self.final:
            message["stays"] = True
        return {**message, "steps": self.steps}


@dataclass(frozen=True)
class Frame:
    """Changes that arrived together. With `progress`, all changes up to these ticks have been received, and `resume` is
    the token with which another subscription continues there. `epochs` has the closed epochs of global streams with
    respect to which rows are final then. With `reset`, all rows begin again: in this frame and the next ones, up to the
    first with `progress`. Rows that have been delivered before are among them."""

    changes: Sequence[Change]
    progress: Mapping[str, int] | None = None
    resume: str | None = field(default=None, repr=False, compare=False)
    epochs: Mapping[str, str] = field(default_factory=dict)
    reset: bool = False

    def progress_json(self) -> Json:
        progress = {stream: tick_json(tick) for stream, tick in (self.progress or {}).items()}
        return {"progress": progress, "epochs": dict(self.epochs)} if self.epochs else {"progress": progress}


class Published(tuple[int, ...]):  # noqa: SLOT001  # a tuple of any length has no slots
    """The ticks of published events, in order. The events are on the broker's disk. `repeated` of them had been logged
    by an earlier attempt, whose acknowledgement was lost. `absent` has the columns that events lacked, and are NULL
    there, with the number of these events."""

    stream: str
    repeated: int
    absent: Mapping[str, int]

    @staticmethod
    def from_ticks(
        stream: str, ticks: Sequence[int | str], repeated: int, absent: Mapping[str, int] = MappingProxyType({})
    ) -> "Published":
        published = Published(int(tick) for tick in ticks)
        published.stream, published.repeated, published.absent = stream, repeated, absent
        return published

    def followed_by(self, other: "Published") -> "Published":
        """What two publications to one stream have published together."""
        absent = Counter(self.absent) + Counter(other.absent)
        return Published.from_ticks(self.stream, (*self, *other), self.repeated + other.repeated, absent)

    @property
    def tick(self) -> int:
        """The tick of the last event."""
        if not self:
            raise error("E079", "no event was published, so there is no tick", hint="Check `if published:` first.")
        return self[-1]


AfterTicks = Published | Mapping[str, int]
"""What a view must include before it is read: published events, or a tick for some of its streams."""


def ticks_of(after: AfterTicks) -> dict[str, int]:
    if isinstance(after, Published):
        return {after.stream: max(after)} if after else {}
    return dict(after)
