"""An input batch: all events of every stream between the previous horizons and its own."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class InputBatch:
    """`events` has one Arrow batch for each stream with events, with the columns of `stream_schema`, in tick order. Of
    a stream with many origins it may have one for each origin instead, by `origin_name`: then events that are known
    already can be told from new ones. `horizons` are those of all streams after this batch, and of the origins of
    streams with many origins."""

    events: Mapping[str, pa.RecordBatch]
    horizons: Mapping[str, int]
