"""What subscribers are told: of each row that is shown, or was, a message with its whole present knowledge.

Rows that are hidden before and after are not worth a word; a row that vanishes is told of as deleted.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from smile.columns import knowledge as k, masks
from smile.columns.knowledge import Column, Objects
from smile.columns.values import Bools, Values
from smile.kernels.changes import Changes
from smile.kernels.layout import Layout
from smile.kernels.seals import Horizons, Seals
from smile.knowledge.json import Json, knowledge_json, plain_json
from smile.knowledge.types import RelationType


def messages(view: str, type_: RelationType, layout: Layout, changes: Changes, horizons: Horizons) -> Iterator[Json]:
    heading, new = type_.heading, changes.new
    shown = masks.shown(new.mask)
    told = np.flatnonzero(shown | masks.shown(changes.old_mask()))
    columns: dict[str, Column] = {**{c: changes.fixed[c] for c in layout.fixed}, **dict(new.columns)}
    final = finals(layout, changes)
    gone = deleted_for_good(type_, changes, horizons)
    for i in told.tolist():
        key = {c: plain_json(changes.fixed[c].at(i, heading.columns[c]), heading.columns[c]) for c in heading.key}
        message: Json = {"view": view, "key": key}
        steps = int(new.steps[i])
        if not shown[i]:
            yield {**message, "deleted": True, "final": bool(gone[i]), "steps": steps}
            continue
        message["row"] = {c: plain_json(_now(columns[c], i, type_, c), heading.columns[c]) for c in heading.values}
        message["knowledge"] = {
            c: knowledge_json(k.known(columns[c], i, heading.columns[c]), heading.columns[c])
            for c in heading.values
            if type_.columns[c].evolves
        }
        message["final"] = bool(final[i])
        if new.mask[i] == masks.T and not final[i]:
            message["stays"] = True
        yield {**message, "steps": steps}


def _now(column: Column, index: int, type_: RelationType, name: str) -> object:
    data = type_.heading.columns[name]
    return column.points[index].now if isinstance(column, Objects) else k.now_of(column).at(index, data)


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
