"""How long `smile check` takes, by number of views: each step of compilation, and the whole command."""

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
    report.plot("compile", "views", "seconds", {"smile check": [(r[0], r[-1]) for r in rows]})


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
    written, translation_problems = timed(lambda: translate(statements))
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
