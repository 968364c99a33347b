"""The figures beside other systems, which docs/performance.md has, in the pages that quote them."""

import re
from pathlib import Path

from tools.reference.markdown import table

PERFORMANCE = Path(__file__).resolve().parents[2] / "docs" / "performance.md"
SECTION = "## Trade-Floor beside others\n"
BLOCK = re.compile(r"(<!-- figures beside peers: begin -->\n).*?(<!-- figures beside peers: end -->)", re.DOTALL)


def with_peer_figures(text: str) -> str:
    """The text with the table of each system's fastest setting between the marks."""
    section = PERFORMANCE.read_text().partition(SECTION)[2].partition("\n## ")[0]
    measured_on = re.findall(r"\((\d{4}-\d\d-\d\d)\)", section)[0]
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"][2:]
    measured = [(row[0], int(row[3].replace(",", ""))) for row in cells if row[2] and row[3]]
    fastest = dict(sorted(measured, key=lambda pair: pair[1]))
    smile = fastest.pop("SMILE on Spark")
    rows = [["SMILE on Spark", f"{smile:,}", ""]]
    rows += [[name, f"{rate:,}", f"{smile / rate:.1f} times"] for name, rate in reversed(fastest.items())]
    shown = table([f"measured on {measured_on}", "events/s", "SMILE is faster by"], rows)
    return BLOCK.sub(lambda match: f"{match[1]}{shown}\n{match[2]}", text)
