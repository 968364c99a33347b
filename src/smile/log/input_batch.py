"""A frame: all that happened on every stream between the horizons before it and its own."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from smile.algebra.types import INT_MAX

HORIZON_MIN = -1
"""The horizon of a stream of which nothing has been heard."""

END = INT_MAX
"""The horizon of a stream that is finished."""


@dataclass(frozen=True)
class InputBatch:
    """`events` has, of each stream on which anything happened, a batch as `stream_schema` says, in order of ticks.
    `horizons` are those of all streams once the frame is known."""

    events: Mapping[str, pa.RecordBatch]
    horizons: Mapping[str, int]
