"""What subscribers are told: of each row that is shown, or was, a message with its whole present knowledge.

Rows that are hidden before and after are not worth a word; a row that vanishes is told of as deleted.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from smile.columns import knowledge as k, masks
from smile.columns.knowledge import Column
from smile.columns.values import Bools, Indices, Values, places_of
from smile.engine.json_columns import known_json, now_json, rows_json, values_json
from smile.kernels.changes import Changes
from smile.kernels.layout import Layout
from smile.kernels.seals import Horizons, Seals
from smile.knowledge.json import Json
from smile.knowledge.types import RelationType


def messages(
    view: str, type_: RelationType, layout: Layout, changes: Changes, horizons: Horizons, every: bool = False
) -> Iterator[Json]:
    """With `every`, all rows are told of: whoever asks knows that those no longer shown were once."""
    told = np.arange(len(changes)) if every else _told(changes)
    if not len(told):
        return
    if len(told) < len(changes):
        changes = changes.take(told)
    heading, count = type_.heading, len(changes)
    keys = rows_json(heading.key, [values_json(changes.fixed[c], heading.columns[c]) for c in heading.key], count)
    columns: dict[str, Column] = {c: _column(changes, layout, c) for c in heading.values}
    rows = rows_json(heading.values, [now_json(columns[c], heading.columns[c]) for c in heading.values], count)
    evolving = tuple(c for c in heading.values if type_.columns[c].evolves)
    known = rows_json(evolving, [known_json(columns[c], heading.columns[c]) for c in evolving], count)
    shown, final = masks.shown(changes.new.mask).tolist(), finals(layout, changes).tolist()
    stays, steps = (changes.new.mask == masks.T).tolist(), changes.new.steps.tolist()
    gone = deleted_for_good(type_, changes, horizons).tolist()
    for i, key in enumerate(keys):
        if not shown[i]:
            yield {"view": view, "key": key, "deleted": True, "final": gone[i], "steps": steps[i]}
            continue
        message: Json = {"view": view, "key": key, "row": rows[i], "knowledge": known[i], "final": final[i]}
        if stays[i] and not final[i]:
            message["stays"] = True
        message["steps"] = steps[i]
        yield message


def _told(changes: Changes) -> Indices:
    """Rows that are shown, or were."""
    return places_of(masks.shown(changes.new.mask) | masks.shown(changes.old_mask()))


def _column(changes: Changes, layout: Layout, name: str) -> Column:
    return changes.fixed[name] if name in layout.fixed else changes.new.columns[name]


def finals(layout: Layout, changes: Changes) -> Bools:
    """Which rows are shown for good with nothing left to learn of them."""
    found = changes.new.mask == masks.T
    for name in layout.evolving:
        found = found & k.finals(changes.new.columns[name])
    return found


def deleted_for_good(type_: RelationType, changes: Changes, horizons: Horizons) -> Bools:
    """Of rows no longer shown: which never will be. One of which nothing is left may be heard of again until sealed."""
    mask = changes.new.mask
    found = mask == masks.F
    absent = mask == masks.ABSENT
    if absent.any():
        key: Mapping[str, Values] = {c: changes.fixed[c] for c in type_.heading.key}
        found |= absent & Seals(type_.seals, type_.heading.columns).reached(horizons, key, len(changes))
    return np.asarray(found)
