"""What an editor is told of a program: errors as they come and go, types of names, names to complete, its layout."""

from pathlib import Path

import pytest

from smile.analysis.recorded_types import parse_recorded_types
from smile.cli.explain import relation_text
from smile.cli.language_server.document import CompletionKind, ProgramDocument
from smile.errors import SmileError
from smile.program import compile_program
from smile.source import Source
from tests.processes import invoke_smile

PROGRAM = """\
-- Orders; and payments: a comment with Orders in it
CREATE STREAM Orders (t: time -> customer: string, #cents: int);
CREATE STREAM Payments (p: time -> customer: string, amount: int);
CREATE VIEW Hourly AS
  SELECT window_end, customer, SUM(#cents) AS total
  FROM TUMBLE(Orders, t, INTERVAL '1' HOUR)
  GROUP BY window_end, customer;
SUBSCRIBE Hourly;
"""
UNBOUNDED = "CREATE VIEW Paid AS SELECT customer, SUM(amount) AS paid FROM Payments GROUP BY customer; SUBSCRIBE Paid;"


def opened(text: str = PROGRAM, name: str = "p.smile") -> ProgramDocument:
    document = ProgramDocument(name, {})
    document.write(text)
    document.check()
    return document


def hovered(document: ProgramDocument, text: str, occurrence: int = 1) -> str | None:
    """What is shown at this text of the program. The span of a hover is the name."""
    offset = -1
    for _ in range(occurrence):
        offset = document.source.text.index(text, offset + 1)
    found = document.hover(offset)
    assert found is None or document.source.text[found.span.start : found.span.end] == text
    return found.text if found else None


def test_errors_and_warnings_are_those_of_check() -> None:
    document, codes = ProgramDocument("p.smile", {}), []
    for text in (PROGRAM + UNBOUNDED, PROGRAM.replace("SUM(#cents)", "SUM(cent)"), PROGRAM.replace("FROM", "FORM")):
        document.write(text)
        try:
            expected = list(compile_program(Source("p.smile", text)).warnings)
        except SmileError as problem:
            expected = problem.diagnostics
        assert list(document.check()) == expected
        codes.append([diagnostic.code for diagnostic in expected])
    assert codes == [["W001"], ["E022"], ["E010"]]


def test_a_hover_says_what_explain_says(tmp_path: Path) -> None:
    (tmp_path / "p.smile").write_text(PROGRAM)
    explained = invoke_smile("explain", "p.smile", "--as", "types", cwd=tmp_path).stdout
    document = opened()
    for relation, occurrence in (("Hourly", 1), ("Hourly", 2), ("Orders", 4), ("Payments", 1)):
        text = hovered(document, relation, occurrence)
        assert text is not None
        assert text in explained, relation


def test_a_hover_of_a_column() -> None:
    """Of the relations that its statement names. Case does not matter, and a name may begin with a sign."""
    document = opened(PROGRAM.replace("AS total", "AS Total"))
    of_view = hovered(document, "Total")
    assert of_view is not None
    assert [line.split()[:2] for line in of_view.splitlines()[:3]] == [
        ["VIEW", "Hourly"],
        ["column", "type"],
        ["Total", "decimal(38,"],
    ]
    assert "sealed" in of_view
    both = hovered(document, "customer", 3)
    assert both is not None
    assert ("VIEW Hourly" in both, "STREAM Orders" in both, "STREAM Payments" in both) == (True, True, False)
    of_stream = hovered(document, "#cents", 2)
    assert of_stream is not None
    assert of_stream.startswith("STREAM Orders")


@pytest.mark.parametrize(
    ("text", "occurrence"), [("SELECT", 1), ("Orders", 1), ("Orders", 2), ("1", 1), ("nothing", 1)]
)
def test_what_has_no_hover(text: str, occurrence: int) -> None:
    """Keywords, comments, numbers and unknown names."""
    assert hovered(opened(PROGRAM + "nothing"), text, occurrence) is None


def test_types_of_the_last_right_text_are_shown() -> None:
    document = opened()
    assert hovered(opened(PROGRAM + "CREATE"), "Hourly") is None
    document.write(PROGRAM + "CREATE VIEW")
    assert document.check()
    text = hovered(document, "Hourly")
    assert text == relation_text(compile_program(Source("p.smile", PROGRAM)).graph, "Hourly")


def test_completions() -> None:
    """Columns are those of the relations in the statement; a statement that is not complete counts too."""
    document = opened()
    document.write(PROGRAM + "CREATE VIEW V AS SELECT ")
    end = len(document.source.text)
    by_kind = {kind: [c.label for c in document.completions(end) if c.kind is kind] for kind in CompletionKind}
    assert by_kind[CompletionKind.column] == []
    assert by_kind[CompletionKind.relation] == ["Orders", "Payments", "Hourly"]
    assert {"SELECT", "SUBSCRIBE", "WHERE"} <= set(by_kind[CompletionKind.keyword])
    assert {"SUM", "COUNT", "LATEST", "COALESCE", "TUMBLE", "SUBSTR"} <= set(by_kind[CompletionKind.function])
    document.write(document.source.text + " FROM Payments WHERE ")
    columns = [c for c in document.completions(end) if c.kind is CompletionKind.column]
    assert [(c.label, c.detail) for c in columns] == [
        ("p", "Payments: time"),
        ("customer", "Payments: string"),
        ("amount", "Payments: int"),
    ]


def test_the_layout_is_that_of_fmt() -> None:
    wild = PROGRAM.replace("CREATE VIEW Hourly AS\n", "create view   Hourly as ")
    formatted = opened(wild).formatted()
    assert formatted is not None
    assert formatted == opened(PROGRAM).formatted() != wild
    assert opened("CREATE VIEW").formatted() is None
    assert opened("x", "p.mmpl").formatted() is None


def test_imports_and_mmpl(tmp_path: Path) -> None:
    (tmp_path / "p.smile").write_text(PROGRAM)
    types = invoke_smile("explain", "p.smile", "--as", "exports", "--broker", "there", cwd=tmp_path).stdout
    document = ProgramDocument("q.smile", parse_recorded_types(types, "types.json"))
    document.write("IMPORT Hourly FROM there; SUBSCRIBE Hourly;")
    assert document.check() == ()
    written = invoke_smile("explain", "p.smile", "--as", "mmpl", cwd=tmp_path).stdout
    text = hovered(opened(written, "p.mmpl"), "Hourly")
    assert text is not None
    assert text.startswith("VIEW Hourly")
