"""Every promise of docs/guarantees.md names a test that is there."""

import re
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "guarantees.md").read_text()
PROMISES = [
    line for line, after in pairwise(TEXT.splitlines()) if line.startswith("| ") and not after.startswith("|---")
]
"""The rows of all tables, without their headings."""


def test_every_promise_names_a_test() -> None:
    assert len(PROMISES) > 20
    for promise in PROMISES:
        assert re.search(r"\]\(\.\./tests/\S+\.py\)", promise), promise


def test_what_is_named_is_there() -> None:
    for name in re.findall(r"\]\(\.\./([^\s)]+)\)", TEXT):
        assert (ROOT / name).is_file(), name
    code = "".join(path.read_text() for path in Path(__file__).parent.glob("*.py"))
    for name in re.findall(r"\(`(\w+)`\)", TEXT):
        assert re.search(rf"^(class|def) {name}\b", code, re.MULTILINE), name
