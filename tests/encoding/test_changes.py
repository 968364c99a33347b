"""Arrow and JSON have the same rows and the same knowledge, for every test program and after every line."""

from typing import Any

import pyarrow as pa
import pytest

from smile.algebra.types import JSON
from smile.encoding.arrow_changes import BOUNDS, EXACTLY, LATEST, ROWS, UNKNOWN, arrow_changes
from smile.encoding.json_changes import json_changes
from smile.engine.local import LocalEngine
from smile.kernels.seals import Horizons
from smile.kernels.transform import InputRelation
from smile.knowledge.values.json import Json, key_json, plain_json
from smile.log.input_batch import InputBatch
from smile.reference.history import History
from smile.testing.reader import CaseFile
from tests.engine.test_programs import kernels
from tests.kernels.harness import input_batch_between
from tests.programs.reader import cases, recorded_lines

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_arrow_tells_what_json_tells(case: CaseFile) -> None:
    program = case.rewritten
    engine = LocalEngine(kernels(program))
    engine.advance(InputBatch({}, {}))
    lines = recorded_lines(case)
    histories = [History.from_lines(program, lines[:n]) for n in range(len(lines) + 1)]
    row_count = 0
    for before, after in zip(histories, [*histories[1:], histories[-1].with_finished_streams()], strict=True):
        batch = engine.advance(input_batch_between(program, before, after))
        for view in program.subscriptions:
            if view in batch.deltas:
                source, changes = engine.kernels.inputs[view], batch.deltas[view]
                wanted = list(json_changes(source, changes, batch.horizons))
                encoded = arrow_changes(source, changes, batch.horizons)
                assert [_message(view, source, row, batch.horizons) for row in encoded.to_pylist()] == wanted
                row_count += len(wanted)
    assert row_count


def _message(view: str, source: InputRelation, row: Json, horizons: Horizons) -> Json:
    """A row of Arrow as the JSON that it stands for."""
    heading = source.type.heading

    def plain(name: str, value: Any) -> Any:
        data = heading.columns[name]
        if data.name == "array" and value is not None:
            return [plain_json(element, data.element) for element in value]
        if data.name == "relation" and value is not None:
            value = [((), row) for row in value]  # the keys go without saying
        return plain_json(value, data)

    key = {c: key_json(row[c], JSON) if heading.columns[c] == JSON else plain(c, row[c]) for c in heading.key}
    if row["deleted"]:
        return {"view": view, "key": key, "deleted": True, "final": row["final"], "steps": row["steps"]}
    knowledge = {}
    for name in heading.value_columns:
        if source.type.columns[name].evolves:
            knowledge[name] = _knowledge(name, row, lambda v, n=name: plain(n, v))
    stays = {"stays": True} if row["stays"] else {}
    plain_row = {c: plain(c, row[c]) for c in heading.value_columns}
    shown = {"view": view, "key": key, "row": plain_row, "knowledge": knowledge, "final": row["final"]}
    return {**shown, **stays, "steps": row["steps"]}


def _knowledge(name: str, row: Json, plain: Any) -> Json:
    code = row.get(f"{name}.knowledge", EXACTLY)
    if code == EXACTLY:
        return {"exactly": plain(row[name])}
    if code == LATEST:
        source = {"source": row[f"{name}.source"]} if f"{name}.source" in row else {}
        return {"latest": plain(row[f"{name}.latest"]), "at": row[f"{name}.at"], **source}
    if code == ROWS:
        return {"rows": row[f"{name}.rows"], "open": row[f"{name}.open"]}
    lo, hi = row.get(f"{name}.at_least"), row.get(f"{name}.at_most")
    if code == UNKNOWN:
        assert lo is None
        assert hi is None
        return {"unknown": True}
    assert code == BOUNDS
    if lo is not None and hi is not None:
        return {"between": [plain(lo), plain(hi)]}
    return {"at_least": plain(lo)} if lo is not None else {"at_most": plain(hi)}


def test_types_do_not_depend_on_the_rows() -> None:
    """Whoever reads several batches finds the same columns in each."""
    for case in cases():
        program = case.rewritten
        engine = LocalEngine(kernels(program))
        seen: dict[str, pa.Schema] = {}
        lines = recorded_lines(case)
        histories = [History.from_lines(program, lines[:n]) for n in range(len(lines) + 1)]
        for before, after in zip(histories, [*histories[1:], histories[-1].with_finished_streams()], strict=True):
            batch = engine.advance(input_batch_between(program, before, after))
            for view in program.subscriptions:
                if view in batch.deltas:
                    encoded = arrow_changes(engine.kernels.inputs[view], batch.deltas[view], batch.horizons)
                    assert seen.setdefault(view, encoded.schema) == encoded.schema, (case.name, view)
