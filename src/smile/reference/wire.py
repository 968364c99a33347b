"""Rows as JSON objects, as they are sent to subscribers. Equal knowledge has equal objects."""

from collections.abc import Iterable

from smile.algebra import mmpl
from smile.algebra.types import Value
from smile.analysis.type_analysis import TypeAnalysis
from smile.knowledge.types import RelationType
from smile.knowledge.values.json import Json, key_json, knowledge_json, plain_json
from smile.knowledge.values.transfer import exact_cell
from smile.reference.evaluate import evaluate
from smile.reference.history import History, RecordedLine
from smile.reference.relation import Horizons, Key, ReferenceRow, Relation, is_sealed


def row_message(view: str, type_: RelationType, key: Key, row: ReferenceRow) -> Json:
    """The message for a row that is, or was, shown."""
    heading = type_.heading
    message: Json = {"view": view, "key": _key_json(type_, key)}
    if not row.is_shown:
        return {**message, "deleted": True, "final": row.mask.is_permanently_hidden, "steps": row.steps}
    message["row"] = {c: plain_json(row.cells[c].now, heading.columns[c]) for c in heading.value_columns}
    message["knowledge"] = {
        c: knowledge_json(row.cells[c], heading.columns[c]) for c in heading.value_columns if type_.columns[c].evolves
    }
    message["final"] = row.is_final
    if row.mask.is_permanently_shown and not row.is_final:
        message["stays"] = True
    return {**message, "steps": row.steps}


def _key_json(type_: RelationType, key: Key) -> Json:
    columns = type_.heading.columns
    return {c: key_json(v, columns[c]) for c, v in zip(type_.heading.key, key, strict=True)}


# ── snapshots and changes ───────────────────────────────────────────────────────────────────────────────────────────


def snapshot_messages(view: str, type_: RelationType, relation: Relation) -> dict[Key, Json]:
    """The messages of the rows that are shown."""
    return {key: row_message(view, type_, key, row) for key, row in relation.items() if row.is_shown}


def change_messages(
    view: str, type_: RelationType, before: dict[Key, Json], relation: Relation, horizons: Horizons
) -> list[Json]:
    """The messages for a subscriber that has received `before`."""
    after = snapshot_messages(view, type_, relation)
    messages = [message for key, message in after.items() if before.get(key) != message]
    for key in before.keys() - after.keys():
        row = relation.get(key)
        messages.append(
            row_message(view, type_, key, row) if row is not None else _absent_row_message(view, type_, key, horizons)
        )
    return messages


def _absent_row_message(view: str, type_: RelationType, key: Key, horizons: Horizons) -> Json:
    """The message for a row that became absent, such as a group that all its members left."""
    columns = type_.heading.columns
    cells = {c: exact_cell(v, columns[c]) for c, v in zip(type_.heading.key, key, strict=True)}
    final = is_sealed(type_.key_seals, cells, columns, horizons)
    return {"view": view, "key": _key_json(type_, key), "deleted": True, "final": final, "steps": 0}


def final_rows(program: mmpl.Program, events: Iterable[RecordedLine]) -> dict[str, dict[Key, dict[str, Value]]]:
    """The rows of every view by plain SQL over all events: its content once all streams are finished."""
    analysis = TypeAnalysis(program)
    relations = evaluate(program, analysis, History.from_lines(program, events).with_finished_streams())
    return {
        view.name: {
            key: {c: row.cells[c].now for c in analysis.relations[view.name].heading.visible}
            for key, row in relations[view.name].items()
            if row.is_shown
        }
        for view in program.views
    }
