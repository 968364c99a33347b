"""An input batch: all events of every stream between the previous horizons and its own."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from smile.algebra.types import INT_MAX

HORIZON_MIN = -1
"""The horizon of a stream of which nothing is known."""

END = INT_MAX
"""The horizon of a stream that is finished."""


@dataclass(frozen=True)
class InputBatch:
    """`events` has one Arrow batch for each stream with events, with the columns of `stream_schema`, in tick order.
    `horizons` are those of all streams after this batch."""

    events: Mapping[str, pa.RecordBatch]
    horizons: Mapping[str, int]
