"""`smile test`: runs test files, and says what differs from the rows that they expect."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smile.cli import options
from smile.cli.exits import error_exit
from smile.cli.files import replace_file
from smile.cli.loading import loading
from smile.errors import SmileError, error, render
from smile.source import Source

if TYPE_CHECKING:
    from smile.testing.comparison import Difference
    from smile.testing.reader import CaseFile, Compile
    from smile.testing.runs import OpenEngine

SUFFIX = ".test"


class Outcome(StrEnum):
    passed = "passed"
    accepted = "accepted"
    failed = "failed"
    unusable = "not run"


def run_test_files(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DIR|FILE", help=f"Test files, and folders with files *{SUFFIX} [default: .]."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("-k", metavar="NAME", help="Only files whose path has this in it.")
    ] = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="Write the rows that are shown into the files, instead of failing.")
    ] = False,
    engine: Annotated[
        options.EngineKind,
        typer.Option(
            "--engine",
            help="local: in this process, in a moment. spark: a pipeline on Spark, which takes seconds for each file "
            "and shows the same rows.",
        ),
    ] = options.EngineKind.local,
    imports: options.ImportsOption = None,
) -> None:
    """Run test files: a program, its events, and the rows that are expected at each cut.

    Rows that differ are shown with the line of the file: - before what was expected, + before what is shown. Exit code
    0 if all files pass, 1 if not. docs/test-files.md describes the files.

    Example: smile test tests -k hourly
    """
    files = _find_files(paths or [Path()], name)
    try:
        compile_source = _compiler(imports or ())
        outcomes: dict[Path, Outcome] = {}
        with _engines(engine) as open_engine:
            for number, path in enumerate(files, 1):
                outcome, details = _run_file(path, compile_source, open_engine, accept)
                place = f"[{number:{len(str(len(files)))}}/{len(files)}] " if len(files) > 1 else ""
                print(f"{place}{outcome}: {path}", *details, sep="\n", flush=True)
                outcomes[path] = outcome
    except SmileError as problem:
        raise error_exit(problem) from None
    _print_summary(outcomes)
    if {Outcome.failed, Outcome.unusable} & {*outcomes.values()}:
        raise typer.Exit(1)


def _print_summary(outcomes: Mapping[Path, Outcome]) -> None:
    """The number of files of each outcome, and of several files those to look at."""
    by_outcome = Counter(outcomes.values())
    counts = ", ".join(f"{count} {outcome}" for outcome in Outcome if (count := by_outcome[outcome]))
    print(f"{len(outcomes)} test file{'s' * (len(outcomes) != 1)}: {counts}")
    for path, outcome in outcomes.items():
        if len(outcomes) > 1 and outcome in (Outcome.failed, Outcome.unusable):
            print(f"  {outcome}: {path}")
    if by_outcome[Outcome.failed]:
        print("  If the rows that are shown are right, accept them: smile test --accept")


def _find_files(paths: Sequence[Path], name: str | None) -> list[Path]:
    """The files themselves, and those in the folders, but for hidden ones."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            in_folder = (p for p in path.rglob(f"*{SUFFIX}") if not _is_hidden(p.relative_to(path)))
            found |= dict.fromkeys(sorted(in_folder))
        elif path.exists():
            found[path] = None
        else:
            raise typer.BadParameter(f"there is no file or folder {path}")
    if not found:
        raise typer.BadParameter(f"there is no file *{SUFFIX} in {', '.join(map(str, paths))}")
    chosen = [path for path in found if name is None or name.casefold() in str(path).casefold()]
    if not chosen:
        raise typer.BadParameter(f"none of the {len(found)} test files has {name!r} in its path")
    return chosen


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _compiler(imports: Sequence[str]) -> "Compile":
    """Compiles each program once, though many files may name it."""
    with loading():
        from smile.program import CompiledProgram, compile_program, read_recorded_types  # noqa: PLC0415
    recorded = read_recorded_types(imports)

    @cache
    def compile_once(source: Source) -> CompiledProgram:
        return compile_program(source, recorded)

    return compile_once


@contextmanager
def _engines(engine: options.EngineKind) -> Iterator["OpenEngine"]:
    with loading():
        from smile.testing.runs import LocalCaseEngine  # noqa: PLC0415  # Arrow takes a while to import
    if engine is options.EngineKind.local:
        yield lambda case: nullcontext(LocalCaseEngine(case))
        return
    with loading():
        from smile.cli.spark_cases import open_spark_engines  # noqa: PLC0415  # Spark too
    print("smile: Spark is starting", file=sys.stderr, flush=True)
    with open_spark_engines() as open_engine:
        yield open_engine


def _run_file(
    path: Path, compile_source: "Compile", open_engine: "OpenEngine", accept: bool
) -> tuple[Outcome, list[str]]:
    """What became of a file, and what to say of it."""
    from smile.testing.reader import CaseError, read_case  # noqa: PLC0415
    from smile.testing.runs import find_differences  # noqa: PLC0415

    try:
        case = read_case(path, compile_source)
        with open_engine(case) as engine:
            differences = find_differences(case, engine)
        if differences and accept:
            _accept(case, differences)
    except CaseError as problem:
        return Outcome.unusable, [str(problem)]
    except SmileError as problem:
        return Outcome.unusable, [render(problem.diagnostics, Source("smile", ""))]
    if not differences:
        return Outcome.passed, []
    return Outcome.accepted if accept else Outcome.failed, [difference.text(case) for difference in differences]


def _accept(case: "CaseFile", differences: Sequence["Difference"]) -> None:
    from smile.testing.acceptance import accepted_text  # noqa: PLC0415

    try:
        replace_file(case.path, accepted_text(case, differences))
    except OSError as problem:
        raise error("E169", f"{case.path} cannot be written: {problem.strerror}") from None


def register(app: typer.Typer) -> None:
    app.command("test")(run_test_files)
