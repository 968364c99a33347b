"""Encodes events of a stream, or of a selection of one, as JSON: in the form of recorded events, with their origins."""

from collections.abc import Iterator, Sequence

from smile.encoding.json_changes import rows_json, values_json
from smile.kernels.delta import Delta
from smile.kernels.transform import InputRelation
from smile.knowledge.values.json import Json, tick_json


def json_events(source: InputRelation, rows: Delta, ticks: Sequence[int], origins: Sequence[str]) -> Iterator[Json]:
    heading = source.type.heading
    columns = [values_json(rows.fixed[c], heading.columns[c]) for c in heading.value_columns]
    events = rows_json(heading.value_columns, columns, len(rows))
    for tick, origin, event in zip(ticks, origins, events, strict=True):
        yield {"stream": source.name, "at": tick_json(tick), "origin": origin, "event": event}
