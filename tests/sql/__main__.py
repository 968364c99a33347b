"""Compares a corpus of queries with PostgreSQL, and prints how many of each kind are accepted, and why the others are not.

`python -m tests.sql 0 1200`: the seed, and the number of queries. With `--write`, the result goes into docs/language.md too.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.postgres.private_server import private_server
from tests.sql.comparison import differences, refusal
from tests.sql.queries import random_queries

DOCUMENT = Path(__file__).parents[2] / "docs" / "language.md"
BEGIN, END = "<!-- corpus: begin -->\n", "<!-- corpus: end -->\n"
Row = tuple[str, int, int, int]


def main(seed: int, count: int, writes: bool) -> int:
    queries = random_queries(seed, count)
    problems = [refusal(query) for query in queries]
    accepted = [query for query, problem in zip(queries, problems, strict=True) if problem is None]
    with private_server() as server, server.connect() as connection:
        different = differences(connection, accepted, seed)
    rows: list[Row] = []
    for kind, total in sorted(Counter(q.kind for q in queries).items()):
        known = sum(q.kind == kind for q in accepted)
        rows.append((kind, total, known, known - sum(q.kind == kind for q, _ in different)))
    rows.append(("all", count, len(accepted), len(accepted) - len(different)))
    reasons = Counter(problem.message for problem in problems if problem is not None).most_common()
    _print(rows, reasons)
    for query, difference in different:
        Console().print(f"\n{query.text}\n{difference}", markup=False)
    if writes:
        before, _, rest = DOCUMENT.read_text().partition(BEGIN)
        DOCUMENT.write_text(f"{before}{BEGIN}{_markdown(seed, count, rows, reasons)}{END}{rest.partition(END)[2]}")
    return int(bool(different))


def _print(rows: Iterable[Row], reasons: Iterable[tuple[str, int]]) -> None:
    table = Table("kind", "queries", "accepted", "same rows")
    for row in rows:
        table.add_row(*map(str, row))
    console = Console()
    console.print(table)
    for reason, number in reasons:
        console.print(f"{number:4} {reason}", markup=False)


def _markdown(seed: int, count: int, rows: Sequence[Row], reasons: Sequence[tuple[str, int]]) -> str:
    _, _, accepted, same = rows[-1]
    kinds = "".join(f"| {kind} | {total} | {known} | {equal} |\n" for kind, total, known, equal in rows)
    refused = "".join(f"| {reason} | {number} |\n" for reason, number in reasons)
    return (
        f"`python -m tests.sql {seed} {count}` accepts {accepted:,} of {count:,} queries ({accepted / count:.1%}); {same:,} of them give the\n"
        "rows of PostgreSQL, on the engine and in the reference. The others were refused:\n\n"
        f"| reason | queries |\n|---|---|\n{refused}\n"
        f"| kind of query | queries | accepted | same rows |\n|---|---|---|---|\n{kinds}"
    )


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:] if argument != "--write"]
    sys.exit(main(numbers[0], numbers[1], "--write" in sys.argv))
