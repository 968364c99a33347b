"""The report of the benchmarks: printed as they run, and written to docs/performance.md, with plots in docs/plots."""

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import matplotlib
from rich.console import Console
from rich.table import Table

from smile import __version__

matplotlib.use("svg")
from matplotlib import pyplot

DOCS = Path(__file__).parent.parent / "docs"


class Report:
    def __init__(self) -> None:
        self.console = Console()
        self.sections: list[str] = []
        """Each begins with its title. Sections of earlier runs stay in the file until their benchmark runs again."""

    def table(self, title: str, text: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        console_table = Table(*columns, title=title)
        for row in rows:
            console_table.add_row(*row)
        self.console.print(console_table)
        self.console.print(text)
        text = f"{text} ({datetime.now(UTC):%Y-%m-%d})"
        lines = [" | ".join(columns), " | ".join("---:" for _ in columns), *(" | ".join(row) for row in rows)]
        self.sections.append(f"## {title}\n\n{text}\n\n" + "\n".join(f"| {line} |" for line in lines))

    def plot(self, name: str, x: str, y: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        figure, axes = pyplot.subplots(figsize=(7, 3.5))
        for label, points in lines.items():
            axes.plot([p[0] for p in points], [p[1] for p in points], marker="o", label=label)
        axes.set(xlabel=x, ylabel=y, xscale="log", yscale="log")
        axes.grid(visible=True, which="both", alpha=0.3)
        axes.legend()
        path = DOCS / "plots" / f"{name}.svg"
        path.parent.mkdir(exist_ok=True)
        figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
        self.sections[-1] += f"\n\n![{y} by {x}](plots/{name}.svg)"

    def write(self) -> None:
        machine = f"{platform.system()}, {platform.machine()}, {_core_count()} cores"
        library_versions = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "numpy", "sqlglot"))
        versions = f"SMILE {__version__}, Python {platform.python_version()}, {library_versions}"
        head = (
            "# Performance\n\n"
            "Written by `make bench`. The figures of a table are of one run on one machine, which may have had other "
            f"work: compare them only within a table, and trust ratios more than figures.\n\n{machine}; {versions}."
        )
        path = DOCS / "performance.md"
        old_sections = path.read_text().rstrip().split("\n\n## ")[1:] if path.exists() else []
        sections = {section.partition("\n")[0]: f"## {section}" for section in old_sections}
        sections |= {section.partition("\n")[0].removeprefix("## "): section for section in self.sections}
        path.write_text("\n\n".join([head, *sections.values()]) + "\n")
        self.console.print("written to docs/performance.md")


def _core_count() -> int:
    return len(os.sched_getaffinity(0))


def verdict(holds: bool) -> str:
    """Whether a target was met, as text."""
    return "met" if holds else "NOT met"
