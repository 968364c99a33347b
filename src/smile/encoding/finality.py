"""Why a stored row is not final, as a value and as JSON."""

from collections.abc import Mapping, Sequence

from smile.columns import knowledge as k
from smile.encoding.json_changes import json_changes
from smile.kernels.delta import Delta, is_row_final
from smile.kernels.seals import Seals
from smile.kernels.transform import InputRelation
from smile.knowledge.finality import FinalityContext, HorizonWait, RowFinality, explain_final_row, explain_row
from smile.knowledge.values.json import Json, tick_json


def row_finality(source: InputRelation, row: Delta, context: FinalityContext) -> RowFinality:
    """Why a row of a view is not final. `row` is a delta with this row only."""
    if is_row_final(source.layout, row)[0]:
        return explain_final_row(source.type.seals, context)
    seals = Seals(source.type.seals, source.type.heading.columns)
    ticks = {stream: int(seals.ticks(stream, row.fixed, 1)[0]) for stream in seals.by_stream}
    open_cells = [c for c in source.layout.evolving if not k.is_final(row.new.columns[c])[0]]
    return explain_row(seals.by_stream, ticks, open_cells, context)


def finality_json(
    source: InputRelation, row: Delta, context: FinalityContext, columns: Sequence[str] | None = None
) -> Json:
    """The answer to "why is this not final?" for a row, with all its cells that evolve or only some of them."""
    finality = row_finality(source, row, context)
    (message,) = json_changes(source, row, context.horizons)
    known: Mapping[str, Json] = message["knowledge"]
    waits = [_wait_json(wait) for wait in finality.waits_for]
    return {
        "view": source.name,
        "key": message["key"],
        "final": finality.is_final,
        "stays": finality.is_final or message.get("stays", False),
        "cells": {
            column: {"knowledge": known[column], "waits_for": waits if column in finality.open_cells else []}
            for column in known
            if columns is None or column in columns
        },
        "waits_for": waits,
        "epochs": {context.inputs[s].name: e for s in source.type.seals if (e := context.epochs.get(s)) is not None},
        "earliest": None if finality.earliest is None else tick_json(finality.earliest),
        "text": finality.text,
    }


def _wait_json(wait: HorizonWait) -> Json:
    return {
        "kind": wait.kind,
        "stream": wait.stream,
        "origin": wait.origin,
        "needs_tick": None if wait.needs_tick is None else tick_json(wait.needs_tick),
        "now_tick": tick_json(wait.now_tick),
        "text": wait.text,
        "parts": [part if isinstance(part, str) else {"tick": tick_json(part.tick)} for part in wait.parts],
    }
