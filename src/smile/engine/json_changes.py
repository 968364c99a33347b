"""Encodes a view's changes as JSON: one message for each row that is or was shown, with its complete current knowledge.

Rows that are hidden both before and after the batch are omitted. A row that is no longer shown is sent as deleted.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from smile.columns import knowledge as k, masks
from smile.columns.knowledge import KnowledgeColumn
from smile.columns.values import Bools, Indices, ValueColumn, true_indices
from smile.engine.json_columns import known_json, now_json, rows_json, values_json
from smile.kernels.delta import Delta
from smile.kernels.layout import Layout
from smile.kernels.seals import Horizons, Seals
from smile.knowledge.types import RelationType
from smile.knowledge.values.json import Json


def json_changes(
    view: str, type_: RelationType, layout: Layout, delta: Delta, horizons: Horizons, include_hidden: bool = False
) -> Iterator[Json]:
    """With `include_hidden`, all hidden rows are sent as deleted: the caller knows that they were shown once."""
    row_indices = np.arange(len(delta)) if include_hidden else _shown_before_or_after(delta)
    if not len(row_indices):
        return
    if len(row_indices) < len(delta):
        delta = delta.take(row_indices)
    heading, count = type_.heading, len(delta)
    keys = rows_json(heading.key, [values_json(delta.fixed[c], heading.columns[c]) for c in heading.key], count)
    columns: dict[str, KnowledgeColumn] = {c: _column(delta, layout, c) for c in heading.value_columns}
    rows = rows_json(
        heading.value_columns, [now_json(columns[c], heading.columns[c]) for c in heading.value_columns], count
    )
    evolving = tuple(c for c in heading.value_columns if type_.columns[c].evolves)
    known = rows_json(evolving, [known_json(columns[c], heading.columns[c]) for c in evolving], count)
    shown, final = masks.is_shown(delta.new.mask).tolist(), finals(layout, delta).tolist()
    stays, steps = (delta.new.mask == masks.T).tolist(), delta.new.steps.tolist()
    final_deletion = final_deletions(type_, delta, horizons).tolist()
    for i, key in enumerate(keys):
        if not shown[i]:
            yield {"view": view, "key": key, "deleted": True, "final": final_deletion[i], "steps": steps[i]}
            continue
        message: Json = {"view": view, "key": key, "row": rows[i], "knowledge": known[i], "final": final[i]}
        if stays[i] and not final[i]:
            message["stays"] = True
        message["steps"] = steps[i]
        yield message


def _shown_before_or_after(delta: Delta) -> Indices:
    return true_indices(masks.is_shown(delta.new.mask) | masks.is_shown(delta.old_mask()))


def _column(delta: Delta, layout: Layout, name: str) -> KnowledgeColumn:
    return delta.fixed[name] if name in layout.fixed else delta.new.columns[name]


def finals(layout: Layout, delta: Delta) -> Bools:
    """Which rows are permanently shown, with all columns known exactly."""
    is_final = delta.new.mask == masks.T
    for name in layout.evolving:
        is_final = is_final & k.is_final(delta.new.columns[name])
    return is_final


def final_deletions(type_: RelationType, delta: Delta, horizons: Horizons) -> Bools:
    """Which of the hidden rows will never be shown again. An absent row may come back until its key is sealed."""
    mask = delta.new.mask
    is_final = mask == masks.F
    absent = mask == masks.ABSENT
    if absent.any():
        key: Mapping[str, ValueColumn] = {c: delta.fixed[c] for c in type_.heading.key}
        is_final |= absent & Seals(type_.seals, type_.heading.columns).is_sealed(horizons, key, len(delta))
    return np.asarray(is_final)
