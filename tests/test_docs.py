"""Every command and every dialogue of the documents gives what the documents say."""

import doctest

import pytest

from tests.docs import ROOT, dialogues, refreshed

DOCUMENTS = [ROOT / "README.md", ROOT / "docs" / "knowledge.md", ROOT / "docs" / "network.md"]


@pytest.mark.slow  # the README's commands start Spark
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_commands_print_what_the_document_says(document) -> None:  # type: ignore[no-untyped-def]
    assert refreshed(document) == document.read_text(), (
        f"repair with: python -m tests.docs {document.relative_to(ROOT)}"
    )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_dialogues(document) -> None:  # type: ignore[no-untyped-def]
    for dialogue in dialogues(document):
        runner = doctest.DocTestRunner(verbose=False)
        runner.run(dialogue)
        assert runner.failures == 0
