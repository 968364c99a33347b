"""Filters on stored data: the work for an event grows with its matches, not with the subscriptions."""

import statistics
import time

import pyarrow as pa

from bench.report import Report
from smile.broker.subscriptions.event_matcher import EventMatcher
from smile.broker.subscriptions.matching.table_history import TableHistory
from smile.program import compile_program
from smile.source import Source

SUBSCRIPTIONS = (100, 300, 1_000, 3_000)
EVENTS = 2_000
ROUNDS = 20
PROGRAM = """
CREATE STREAM Quotes (t: time -> symbol: string, price: int);
CREATE STREAM Portfolios (t TIME KEY, change string, id int, symbol string) WITH (CHANGES = TABLE);
"""


def report_filters(report: Report) -> None:
    rows = []
    for subscriptions in SUBSCRIPTIONS:
        one_us, examined = _measure(subscriptions, holders=1)
        ten_us, _ = _measure(subscriptions, holders=10)
        rows.append((f"{subscriptions:,}", f"{one_us:.2f}", f"{examined:.1f}", f"{ten_us:.2f}"))
    report.table(
        "Filters and the number of subscriptions",
        "Each subscription asks for the quotes of the symbols in its portfolio, a table. Microseconds of one core an "
        f"event, median of {ROUNDS} rounds of {EVENTS:,} events, which match one or ten subscriptions each. What is "
        "examined should not depend on the number of subscriptions. Each subscription that a round matches has a cost "
        "of its own: of 100, each is matched by 20 events of a round, of 3,000 by one at most.",
        ("subscriptions", "µs an event, 1 match", "rows examined an event, 1 match", "µs an event, 10 matches"),
        rows,
    )


def _measure(subscriptions: int, holders: int) -> tuple[float, float]:
    """Microseconds for each event, and what is examined for it. Each symbol is held by so many portfolios."""
    program = compile_program(Source("quotes.smile", PROGRAM)).original
    table = next(stream for stream in program.streams if stream.name == "Portfolios")
    history = TableHistory(table)
    symbols = [f"S{n // holders}" for n in range(subscriptions)]
    changes = pa.record_batch(
        {
            "t": pa.array(range(1, subscriptions + 1), pa.int64()),
            "change": pa.array(["insert"] * subscriptions),
            "id": pa.array(range(subscriptions), pa.int64()),
            "symbol": pa.array(symbols),
        }
    )
    history.advance([changes], subscriptions)
    matcher: EventMatcher[int] = EventMatcher(program, "Quotes", {"Portfolios": history}.__getitem__)
    for n in range(subscriptions):
        matcher.add(n, f"symbol IN (SELECT symbol FROM Portfolios WHERE id = {n})")
    times_us, before = [], matcher.examined
    for round_ in range(ROUNDS):
        first = subscriptions + 1 + round_ * EVENTS
        events = pa.record_batch(
            {
                "t": pa.array(range(first, first + EVENTS), pa.int64()),
                "symbol": pa.array([symbols[n % subscriptions] for n in range(EVENTS)]),
                "price": pa.array(range(EVENTS), pa.int64()),
            }
        )
        history.advance([], first + EVENTS)
        start_s = time.perf_counter()
        matches = matcher.match(events)
        times_us.append(1e6 * (time.perf_counter() - start_s) / EVENTS)
        assert len(matches) == holders * EVENTS
    return statistics.median(times_us), (matcher.examined - before) / (ROUNDS * EVENTS)
