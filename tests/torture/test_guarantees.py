"""Every promise of docs/guarantees.md, and every remedy of docs/operating.md, names a test that is there."""

import re
from itertools import pairwise
from pathlib import Path

from smile.errors import CATALOGUE
from smile.gateway.metrics import BROKER_METRICS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "guarantees.md").read_text()
PROMISES = [
    line for line, after in pairwise(TEXT.splitlines()) if line.startswith("| ") and not after.startswith("|---")
]
"""The rows of all tables, without their headings."""
OPERATING = (ROOT / "docs" / "operating.md").read_text()


def test_every_promise_names_a_test() -> None:
    assert len(PROMISES) > 20
    for promise in PROMISES:
        assert re.search(r"\]\(\.\./tests/\S+\.py\)", promise), promise


def test_what_is_named_is_there() -> None:
    for name in re.findall(r"\]\(\.\./([^\s)]+)\)", TEXT + OPERATING):
        assert (ROOT / name).is_file(), name
    folders = (ROOT / "tests" / "torture", ROOT / "tests" / "simulation")
    code = "".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))
    for name in re.findall(r"\(`(\w+)`\)", TEXT):
        assert re.search(rf"^(class|def) {name}\b", code, re.MULTILINE), name


def test_every_remedy_was_tried() -> None:
    remedies, _, alerts = OPERATING.partition("## Metrics to alert on")
    rows = [line for line in remedies.splitlines() if line.startswith("| ") and "what to do" not in line]
    assert len(rows) > 20
    for row in rows:
        assert re.search(r"\]\(\.\./tests/\S+\.py\)", row), row
    names = {metric.name for metric in BROKER_METRICS} | {
        "smile_trouble_since",
        "smile_publish_delay_seconds",
        "smile_delivery_delay_seconds",
    }
    assert set(re.findall(r"`(smile_\w+)`", alerts)) <= names


def test_every_code_that_operators_see_exists() -> None:
    assert set(re.findall(r"\b[EW]\d{3}\b", OPERATING)) <= set(CATALOGUE)
