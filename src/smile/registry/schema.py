"""Global streams: relations that every broker knows, and whose events come from any producer in the network."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from smile.algebra import mmpl
from smile.algebra.heading import check_unique
from smile.algebra.types import TIME, DataType

Columns = tuple[tuple[str, DataType], ...]


@dataclass(frozen=True)
class GlobalSchema:
    """The values of its key attributes are the channel of an event. The tick orders the events of a channel; like the
    measurement attributes, it is no key attribute."""

    name: str
    tick: str
    key_columns: Columns
    measurement_columns: Columns

    def __post_init__(self) -> None:
        check_unique((self.tick, *(name for name, _ in (*self.key_columns, *self.measurement_columns))), None)

    @cached_property
    def types(self) -> Mapping[str, DataType]:
        """The data types of all columns. Key attributes come first."""
        return MappingProxyType({**dict(self.key_columns), **dict(self.measurement_columns), self.tick: TIME})

    @cached_property
    def key_names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.key_columns)

    def __getstate__(self) -> dict[str, object]:
        """A read-only mapping cannot be pickled; it is computed again."""
        return {name: value for name, value in self.__dict__.items() if name != "types"}


def global_schema(stream: mmpl.StreamDef) -> GlobalSchema:
    """The schema of a global stream as a program declares it."""
    keys = stream.channel or ()
    key_columns = tuple((name, data_type) for name, data_type in stream.columns if name in keys)
    measurements = tuple((name, data_type) for name, data_type in stream.columns if name not in keys)
    return GlobalSchema(stream.name, stream.tick, key_columns, measurements)
