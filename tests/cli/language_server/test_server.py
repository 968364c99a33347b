"""`smile lsp` as an editor uses it: a process that is spoken to over its standard input and output."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from tests.cli.language_server.test_document import PROGRAM
from tests.docs import ROOT
from tests.processes import SMILE, WAIT_S, clean_environment, invoke_smile

URI = "file:///shop/p.smile"
Json = dict[str, Any]


class Editor:
    """A minimal client. Requests wait for their answers; what comes meanwhile is put into `notices`."""

    def __init__(self, *words: str, cwd: Path) -> None:
        self.process = subprocess.Popen(
            [SMILE, "lsp", *words],
            cwd=cwd,
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.notices: list[Json] = []
        self._number = self._version = 0

    def __enter__(self) -> Self:
        initialized = self.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
        self.capabilities = initialized["capabilities"]
        self.tell("initialized", {})
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def tell(self, method: str, params: Json) -> None:
        self._send({"method": method, "params": params})

    def ask(self, method: str, params: Json | None = None) -> Any:  # Any: the answers of many methods
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        while (message := self._receive()).get("id") != self._number:
            self.notices.append(message)
        assert "error" not in message, message
        return message["result"]

    def open(self, text: str, uri: str = URI) -> list[Json]:
        self._version = 1
        document = {"uri": uri, "languageId": "smile", "version": 1, "text": text}
        self.tell("textDocument/didOpen", {"textDocument": document})
        return self.diagnostics()

    def change(self, start: Json, end: Json, text: str) -> None:
        self._version += 1
        change = {"range": {"start": start, "end": end}, "text": text}
        document = {"uri": URI, "version": self._version}
        self.tell("textDocument/didChange", {"textDocument": document, "contentChanges": [change]})

    def diagnostics(self) -> list[Json]:
        """Those of the present version; those of earlier ones are not waited for."""
        while True:
            message = self.notices.pop(0) if self.notices else self._receive()
            if message.get("method") == "textDocument/publishDiagnostics":
                assert message["params"]["version"] == self._version
                found: list[Json] = message["params"]["diagnostics"]
                return found

    def at(self, method: str, line: int, character: int) -> Any:
        return self.ask(method, {"textDocument": {"uri": URI}, "position": place(line, character)})

    def _send(self, message: Json) -> None:
        assert self.process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def _receive(self) -> Json:
        assert self.process.stdout is not None
        length = 0
        while line := self.process.stdout.readline().strip():
            name, _, value = line.partition(b": ")
            if name == b"Content-Length":
                length = int(value)
        assert length, self.process.stderr.read() if self.process.stderr else ""
        message: Json = json.loads(self.process.stdout.read(length))
        return message


def place(line: int, character: int) -> Json:
    return {"line": line, "character": character}


@pytest.fixture
def editor(tmp_path: Path) -> Iterator[Editor]:
    with Editor(cwd=tmp_path) as editor:
        yield editor


@pytest.mark.slow
def test_a_program_is_written(editor: Editor) -> None:
    """Errors come and go as one types, with hints; then a name is explained, completed, and the program laid out."""
    assert editor.capabilities["hoverProvider"]
    assert editor.open(PROGRAM) == []
    begin = PROGRAM.split("\n")[4].index("#cents")
    start, end = place(4, begin), place(4, begin + 6)
    editor.change(start, end, "#costs")
    (wrong,) = editor.diagnostics()
    assert wrong["range"] == {"start": start, "end": end}
    assert (wrong["severity"], wrong["code"], wrong["source"]) == (1, "E022", "smile")
    assert "\nhint: " in wrong["message"]
    for text in ("#", "#c", "#ce", "#cents"):  # only the last of them is checked
        editor.change(start, end, text)
        end = place(4, begin + len(text))
    assert editor.diagnostics() == []
    shown = editor.at("textDocument/hover", 3, 13)
    assert shown["contents"]["value"].startswith("```text\nVIEW Hourly  key window_end, customer")
    assert shown["range"] == {"start": place(3, 12), "end": place(3, 18)}
    assert editor.at("textDocument/hover", 3, 1) is None
    assert [notice for notice in editor.notices if notice["method"] == "textDocument/publishDiagnostics"] == []
    labels = [item["label"] for item in editor.at("textDocument/completion", 7, 10)]
    assert {"Hourly", "Orders", "SUBSCRIBE", "COUNT"} <= set(labels)
    formatted = editor.ask(
        "textDocument/formatting", {"textDocument": {"uri": URI}, "options": {"tabSize": 2, "insertSpaces": True}}
    )
    assert formatted is None, "it is in the style"
    editor.change(place(3, 0), place(3, 6), "create  ")
    (edit,) = editor.ask(
        "textDocument/formatting", {"textDocument": {"uri": URI}, "options": {"tabSize": 2, "insertSpaces": True}}
    )
    assert edit["newText"] == PROGRAM
    assert edit["range"]["start"] == place(0, 0)
    editor.tell("textDocument/didClose", {"textDocument": {"uri": URI}})
    assert editor.ask("shutdown") is None
    editor.tell("exit", {})
    assert editor.process.wait(WAIT_S) == 0


@pytest.mark.slow
def test_positions_are_in_the_units_of_the_editor(editor: Editor) -> None:
    """UTF-16: a sign beyond the basic plane counts twice."""
    text = PROGRAM.replace("CREATE VIEW Hourly", "/* 🐑 */ CREATE VIEW Hourly").replace("SUM(#cents)", "SUM(x)")
    (wrong,) = editor.open(text.replace("\n  SELECT", " SELECT"))
    line = text.replace("\n  SELECT", " SELECT").split("\n")[3]
    column = line.index("SUM(x)") + len("SUM(") + 1
    assert wrong["range"] == {"start": place(3, column), "end": place(3, column + 1)}


def test_the_settings_of_the_editors_start_it() -> None:
    page = (ROOT / "docs/howto/editor.md").read_text()
    (settings,) = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    code = json.loads(settings)
    assert [code["glspc.server.command"], *code["glspc.server.commandArguments"]] == ["smile", "lsp"]
    assert set(code["files.associations"].values()) == set(code["glspc.server.languageId"])
    assert 'cmd = { "smile", "lsp" }' in page


def test_a_wrong_file_of_types_ends_the_command(tmp_path: Path) -> None:
    done = invoke_smile("lsp", "--imports", "none.json", cwd=tmp_path)
    assert (done.exit_code, "error E001: none.json cannot be read" in done.stderr) == (1, True)
