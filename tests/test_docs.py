"""Every command, test program and dialogue of the documents gives what the documents say, and every link leads somewhere."""

import doctest
from pathlib import Path

import pytest

from smile.engine.local import LocalEngine
from tests.docs import BLOCK, ROOT, beside_its_broker, cases, dialogues, refreshed
from tests.engine.test_programs import advance, kernels, rows
from tests.programs.compare import assert_rows

HOW_TO = sorted((ROOT / "docs" / "howto").glob("*.md"))
NAMES = ("tutorial", "replaying", "client", "knowledge", "language", "network", "registry", "test-files")
DOCUMENTS = [
    *(ROOT / "docs" / f"{name}.md" for name in NAMES),
    *(page for page in HOW_TO if page.name not in ("dashboards.md", "editor.md", "kafka.md")),
]


RUN_ELSEWHERE = {
    "README.md": "tests/test_readme_broker.py",
    "dashboards.md": "tests/test_docs_dashboard.py",
    "editor.md": "tests/cli/language_server/test_server.py",
    "kafka.md": "tests/test_docs_kafka.py",
    "spark.md": "tests/spark/test_docs.py",
}
"""Pages whose commands or dialogues are run by other tests."""


def has_examples(document: Path) -> bool:
    """Whether it has something that `test_a_document_is_true` runs."""
    return any(language in ("console", "pycon", "test") for language, _, _ in BLOCK.findall(document.read_text()))


def test_the_examples_of_every_page_are_run() -> None:
    pages = [*(ROOT / "docs").glob("*.md"), *HOW_TO, ROOT / "README.md"]
    assert {page.name for page in pages if has_examples(page)} <= {page.name for page in DOCUMENTS} | {*RUN_ELSEWHERE}
    assert [page.name for page in DOCUMENTS if not has_examples(page) and page.name not in RUN_ELSEWHERE] == []
    for name, test in RUN_ELSEWHERE.items():
        assert name in (ROOT / test).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.stem)
def test_a_document_is_true(document: Path) -> None:
    with beside_its_broker(document):
        assert refreshed(document) == document.read_text(), (
            f"repair with: python -m tests.docs {document.relative_to(ROOT)}"
        )
        for dialogue in dialogues(document):
            runner = doctest.DocTestRunner(verbose=False)
            runner.run(dialogue)
            assert runner.failures == 0


@pytest.mark.parametrize(
    "document",
    [d for d in [*HOW_TO, ROOT / "docs" / "language.md"] if "```test" in d.read_text()],
    ids=lambda d: d.stem,
)
def test_the_engine_shows_the_rows_of_a_test_program(document: Path, tmp_path: Path) -> None:
    """`test_a_document_is_true` compares the same rows with the reference."""
    for case in cases(document, tmp_path):
        program = case.rewritten
        for cut in case.rows:
            engine = LocalEngine(kernels(program))
            advance(engine, program, case, [len(case.events) if cut is None else cut], end=cut is None)
            assert_rows(case, cut, rows(engine, program))
