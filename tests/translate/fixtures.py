"""Reads fixture files. A case is SmileSQL text, a line of dashes, and the expected MMPL or errors.

A file starts with definitions that all its cases share. Each case starts with a line `### title`. For compilation, the
shared definitions are appended to the text of the case, so that positions are counted from its first line. The shared
streams are omitted from the MMPL. `python tests/translate/fixtures.py` rewrites the expected results: check the
difference.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from smile.algebra.printer import print_program
from smile.analysis.export_description import describe_exports
from smile.errors import Diagnostic, SmileError
from smile.program import CompiledProgram, compile_program
from smile.source import Source

FOLDER = Path(__file__).parent
DASHES = "-" * 20

EXPORTING_PROGRAM = """
CREATE STREAM Trades (t: time -> issue: string, price: centspershare);
CREATE VIEW Totals AS SELECT issue, SUM(price) AS total FROM Trades GROUP BY issue;
CREATE VIEW Dear AS SELECT issue, total FROM Totals WHERE total < 100;
CREATE VIEW DearTotals AS SELECT issue, SUM(total) AS total FROM Dear GROUP BY issue;
"""
RECORDED = {
    "desk": describe_exports(
        compile_program(Source("desk.smile", EXPORTING_PROGRAM)).rewritten, ["Trades", "Totals", "Dear", "DearTotals"]
    )
}
"""What the cases can import."""


@dataclass(frozen=True)
class Case:
    file: str
    title: str
    shared: str
    text: str
    expected: str

    @property
    def source(self) -> Source:
        return Source("case.smile", f"{self.text}\n{self.shared}")


def read_cases(path: Path) -> Iterator[Case]:
    shared, *parts = path.read_text().split("\n### ")
    for part in parts:
        title, _, body = part.partition("\n")
        text, _, expected = body.partition(f"\n{DASHES}\n")
        yield Case(path.name, title, shared.strip(), text.strip(), expected.strip())


def all_cases() -> list[Case]:
    return [case for path in sorted(FOLDER.glob("*.test")) for case in read_cases(path)]


def outcome(case: Case) -> str:
    try:
        return program_text(case, compile_program(case.source, RECORDED))
    except SmileError as failure:
        return errors_text(case.source, failure.diagnostics)


def program_text(case: Case, compiled: CompiledProgram) -> str:
    program = compiled.original
    own_streams = tuple(s for s in program.streams if s.span is None or s.span.start < len(case.text))
    return print_program(replace(program, streams=own_streams)).strip()


def errors_text(source: Source, diagnostics: list[Diagnostic]) -> str:
    lines = []
    for d in sorted(diagnostics, key=lambda d: d.span.start if d.span else 0):
        position = "{}:{}: ".format(*source.line_col(d.span.start)) if d.span else ""
        lines.append(f"{position}error {d.code}: {d.message}")
        lines += [f"  hint: {d.hint}"] if d.hint else []
    return "\n".join(lines)


def update(path: Path) -> None:
    cases = list(read_cases(path))
    parts = [cases[0].shared if cases else path.read_text().strip()]
    parts += [f"### {c.title}\n{c.text}\n{DASHES}\n{outcome(c)}" for c in cases]
    path.write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(p.name for p in FOLDER.glob("*.test")):
        update(FOLDER / name)
