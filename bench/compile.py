"""How long `smile check` takes, by number of views: each step of compilation, and the whole command; and how long one
wide view takes."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rich.progress import track

from bench.programs import generate_program
from bench.report import Report
from smile import lang
from smile.analysis.type_analysis import TypeAnalysis
from smile.analysis.warnings import program_warnings
from smile.engine.plan import partitioned_stages
from smile.graph.build import build_graph
from smile.kernels.compile import compile_graph
from smile.program import compile_program
from smile.rules import rewrite
from smile.source import Source
from smile.translate import translate

SIZES = (10, 30, 100, 300, 1000)
STEPS = ("parse", "translate", "rewrite", "type", "graph", "kernels")
TARGET_S = 5.0
T = TypeVar("T")


def run(report: Report) -> None:
    rows = []
    for views in track(SIZES, "checking programs"):
        rows.append((views, *_time_steps(views), _time_command(views)))
    report.table(
        "Checking a program",
        f"`smile check` on programs of {SIZES[0]} to {SIZES[-1]:,} views of ten kinds, every fifth subscribed. "
        "Seconds, by step, and for the whole command including the start of Python. "
        f"A program of {SIZES[-1]:,} views should take less than {TARGET_S:g} s: {_verdict(rows[-1][-1])}.",
        ("views", *STEPS, "command", "ms a view"),
        [(f"{r[0]:,}", *(f"{s:.2f}" for s in r[1:]), f"{r[-1] / r[0] * 1000:.1f}") for r in rows],
    )
    _time_widths(report)
    report.plot("compile", "views", "seconds", {"smile check": [(r[0], r[-1]) for r in rows]})


WIDTHS = (100, 300, 900, 2700)


def _time_widths(report: Report) -> None:
    """One view of many columns, aggregates or conditions: the time has to grow in proportion to their number."""
    rows = []
    for width in track(WIDTHS, "compiling wide views"):
        rows.append((width, *(_compile_seconds(program(width)) for program in _WIDE_PROGRAMS.values())))
    report.table(
        "Compiling a wide view",
        "One view with many columns, each an expression; with many aggregates; with a WHERE of many alternatives, and "
        f"with a sum of many terms, of which a view can have {LEVELS_MAX}. Seconds of all steps: in proportion to the "
        "width, if each line has about three times those of the line above.",
        ("width", *_WIDE_PROGRAMS),
        [(f"{r[0]:,}", *("" if s is None else f"{s:.2f}" for s in r[1:])) for r in rows],
    )


def _wide_stream(columns: int) -> str:
    return f"CREATE STREAM s (t: time -> {', '.join(f'a{i}: int' for i in range(columns))});\n"


def _columns_program(width: int) -> str:
    outputs = ", ".join(f"a{i} + 1 AS x{i}" for i in range(width))
    return f"{_wide_stream(width)}CREATE VIEW v AS SELECT t, {outputs} FROM s;\nSUBSCRIBE v;"


def _aggregates_program(width: int) -> str:
    outputs = ", ".join(f"SUM(a{i}) AS x{i}" for i in range(width))
    return f"{_wide_stream(width)}CREATE VIEW v AS SELECT {outputs} FROM s;\nSUBSCRIBE v;"


def _alternatives_program(width: int) -> str | None:
    if width > LEVELS_MAX:
        return None
    where = " OR ".join(f"a0 = {i}" for i in range(width))
    return f"{_wide_stream(1)}CREATE VIEW v AS SELECT t FROM s WHERE {where};\nSUBSCRIBE v;"


def _sum_program(width: int) -> str | None:
    if width > LEVELS_MAX:
        return None
    terms = " + ".join(f"a{i}" for i in range(width))
    return f"{_wide_stream(width)}CREATE VIEW v AS SELECT t, {terms} AS x FROM s;\nSUBSCRIBE v;"


LEVELS_MAX = 900
"""A statement may have a thousand levels, of which each OR is one, and each term of a sum."""

_WIDE_PROGRAMS: dict[str, Callable[[int], str | None]] = {
    "columns": _columns_program,
    "aggregates": _aggregates_program,
    "alternatives": _alternatives_program,
    "terms of a sum": _sum_program,
}


def _compile_seconds(text: str | None) -> float | None:
    if text is None:
        return None
    start = time.perf_counter()
    compiled = compile_program(Source("wide.smile", text))
    partitioned_stages(compiled.graph, compile_graph(compiled.graph, compiled.rewritten.streams))
    return time.perf_counter() - start


def _verdict(seconds: float) -> str:
    return "it does" if seconds < TARGET_S else "it does not"


def _time_steps(views: int) -> list[float]:
    source = Source("bench.smile", generate_program(views))
    seconds: list[float] = []

    def timed(step: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = step()
        seconds.append(time.perf_counter() - start)
        return result

    statements, problems = timed(lambda: lang.parse(source))
    written, translation_problems, _ = timed(lambda: translate(statements))
    assert not problems
    assert not translation_problems
    rewritten = timed(lambda: rewrite(written))

    def analyse() -> TypeAnalysis:
        analysis = TypeAnalysis(rewritten)
        program_warnings(rewritten, analysis)
        return analysis

    analysis = timed(analyse)
    graph = timed(lambda: build_graph(rewritten, analysis))
    timed(lambda: partitioned_stages(graph, compile_graph(graph, rewritten.streams)))
    return seconds


def _time_command(views: int) -> float:
    """The shortest of three runs, which other work on the machine disturbed least."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bench.smile")
        path.write_text(generate_program(views))
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            subprocess.run([Path(sys.executable).parent / "smile", "check", path], check=True, capture_output=True)
            best = min(best, time.perf_counter() - start)
    return best
