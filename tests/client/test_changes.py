"""Changes of the example programs, as a client decodes them: nothing is lost or altered."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from smile.cli.main import app
from smile.client import Knowledge, Schema
from smile.client.changes import Key
from smile.program import compile_program, read_source

PROGRAMS = sorted((Path(__file__).parent.parent.parent / "programs").glob("*.smile"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
@pytest.mark.parametrize("batch", [1, 1000])
def test_there_and_back(path: Path, batch: int) -> None:
    relations = compile_program(read_source(str(path))).analysis.relations
    schemas = {}
    for view, relation in relations.items():
        heading = relation.heading
        columns = {name: str(heading.columns[name]) for name in (*heading.key, *heading.value_columns)}
        answer = {"subscribed": view, "key": list(heading.key), "columns": columns, "streams": []}
        schemas[view] = Schema.from_json(answer)
    replay = [
        "replay",
        str(path),
        "--events",
        str(path.with_suffix(".events")),
        "--engine",
        "local",
        "--changes",
        "--end",
    ]
    done = CliRunner().invoke(app, [*replay, "--batch", str(batch)])
    assert done.exit_code == 0, done.stderr
    last: dict[tuple[str, Key, str], Knowledge] = {}
    changes = 0
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if "progress" in message:
            continue
        change = schemas[message["view"]].decode_change(message)
        assert change.to_json() == message
        changes += 1
        for column, known in change.knowledge.items():
            before = last.get((message["view"], change.id, column), known)
            assert before.evolves_to(known), (line, column)
            last[message["view"], change.id, column] = known
    assert changes > 3
