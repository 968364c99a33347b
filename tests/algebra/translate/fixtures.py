"""Fixture files: a case is SmileSQL, a line of dashes, and the MMPL it becomes or the errors it has.

A file starts with definitions that all its cases share; each case starts with a line `### title`. The definitions come
after the case's own text when it is compiled, so that places in it are counted from its first line. Of the MMPL, the
shared streams are left out. `python tests/algebra/translate/fixtures.py` writes what is expected anew: read it.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from smile.algebra.printer import print_program
from smile.errors import Diagnostic, SmileError
from smile.program import CompiledProgram, compile_program
from smile.source import Source

FOLDER = Path(__file__).parent
DASHES = "-" * 20


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
        return shown_program(case, compile_program(case.source))
    except SmileError as failure:
        return shown_errors(case.source, failure.diagnostics)


def shown_program(case: Case, compiled: CompiledProgram) -> str:
    known = len(case.text)
    written = compiled.original
    own = tuple(s for s in written.streams if s.span is None or s.span.start < known)
    return print_program(replace(written, streams=own)).strip()


def shown_errors(source: Source, diagnostics: list[Diagnostic]) -> str:
    lines = []
    for d in sorted(diagnostics, key=lambda d: d.span.start if d.span else 0):
        place = "{}:{}: ".format(*source.line_col(d.span.start)) if d.span else ""
        lines.append(f"{place}error {d.code}: {d.message}")
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
