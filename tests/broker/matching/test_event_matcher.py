"""The matcher finds exactly the pairs of an event and a filter that a slow evaluator finds, with work that does not depend
on the number of subscriptions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from smile.broker.subscriptions.event_filter import parse_filter, with_condition
from smile.broker.subscriptions.event_matcher import EventMatcher, check_filter
from smile.broker.subscriptions.matching.table_history import Periods, TableHistory
from smile.broker.subscriptions.matching.table_index import TableIndex
from smile.broker.subscriptions.matching.table_lookup import TableLookup
from smile.broker.subscriptions.selection import find_selection
from smile.broker.views.condition import parse_condition
from smile.errors import SmileError
from smile.program import compile_program
from smile.source import Source
from tests.broker.matching.random_filters import PROGRAM, SYMBOLS, RandomFilter, frequent_filter, random_filter
from tests.repeatable import scaled

COMPILED = compile_program(Source("quotes.sql", PROGRAM)).original
STREAMS = {stream.name: stream for stream in COMPILED.streams}
TYPES = {"symbol": pa.string(), "price": pa.decimal128(8, 2), "size": pa.int64(), "note": pa.string()}
CHANGE_TYPES = {
    "Portfolios": {"change": pa.string(), "id": pa.int64(), "symbol": pa.string(), "least": pa.int64()},
    "Halted": {"change": pa.string(), "symbol": pa.string()},
}

NO_TABLES: dict[str, TableHistory] = {}


def batch(types: dict[str, pa.DataType], rows: Sequence[tuple[int, dict[str, Any]]]) -> pa.RecordBatch:
    columns = {"t": pa.array([tick for tick, _ in rows], pa.int64())}
    columns |= {name: pa.array([row[name] for _, row in rows], kind) for name, kind in types.items()}
    return pa.record_batch(columns)


def quotes(*rows: tuple[int, dict[str, Any]]) -> pa.RecordBatch:
    return batch(TYPES, [(tick, {"price": None, "size": 1, "note": None, **row}) for tick, row in rows])


@dataclass
class World:
    """Events and changes of tables at random ticks. The contents as of each tick are counted from the beginning."""

    random: Random
    events: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    changes: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = self.random
        inserted: dict[str, list[dict[str, Any]]] = {"Portfolios": [], "Halted": []}
        for tick in range(1, 80):
            if random.random() < 0.5:
                self.events.append((tick, self._event()))
                continue
            table = random.choice(("Portfolios", "Portfolios", "Portfolios", "Halted"))
            if inserted[table] and random.random() < 0.45:
                row = inserted[table].pop(random.randrange(len(inserted[table])))
                self.changes.append((tick, table, {"change": "delete", **row}))
            else:
                row = self._row(table)
                inserted[table].append(row)
                self.changes.append((tick, table, {"change": "insert", **row}))

    def _event(self) -> dict[str, Any]:
        random = self.random
        return {
            "symbol": random.choice((*SYMBOLS, None)),
            "price": random.choice((None, Decimal("0.00"), Decimal("1.50"), Decimal("2.00"), Decimal("3.00"))),
            "size": random.choice((None, 0, 1, 2, 3)),
            "note": random.choice((None, "x")),
        }

    def _row(self, table: str) -> dict[str, Any]:
        random = self.random
        symbol = random.choice((*SYMBOLS, *SYMBOLS, None)) if random.random() < 0.4 else random.choice(SYMBOLS)
        if table == "Halted":
            return {"symbol": symbol}
        return {"id": random.choice((0, 1, 2, 2, None)), "symbol": symbol, "least": random.choice((None, 0, 1, 2))}

    def tables_at(self, tick: int) -> dict[str, list[dict[str, Any]]]:
        counts: dict[str, Counter[tuple[tuple[str, Any], ...]]] = {"Portfolios": Counter(), "Halted": Counter()}
        for at, table, change in self.changes:
            if at <= tick:
                row = tuple((name, value) for name, value in change.items() if name != "change")
                counts[table][row] += 1 if change["change"] == "insert" else -1
        return {table: [dict(row) for row in counter.elements()] for table, counter in counts.items()}

    def expected(self, filters: dict[int, RandomFilter], lo: int, hi: int) -> set[tuple[int, int]]:
        return {
            (tick, number)
            for tick, event in self.events
            if lo < tick <= hi
            for number, wanted in filters.items()
            if wanted.evaluate(event, self.tables_at(tick)) is True
        }


def run_world(seed: int) -> None:
    """Tables and events advance in random steps. Meanwhile subscriptions come and go, and floors move."""
    random = Random(seed)
    world = World(random)
    histories = {name: TableHistory(STREAMS[name]) for name in ("Portfolios", "Halted")}
    matcher: EventMatcher[int] = EventMatcher(COMPILED, "Quotes", histories.__getitem__)
    filters: dict[int, RandomFilter] = {}
    matched_to, next_number = 0, 0
    while matched_to < 80:
        for _ in range(random.randrange(5)):
            make = random_filter if random.random() < 0.5 else frequent_filter
            filters[next_number] = make(random)
            matcher.add(next_number, filters[next_number].text)
            next_number += 1
        while len(filters) > 25 or (filters and random.random() < 0.2):
            removed = random.choice(list(filters))
            del filters[removed]
            matcher.remove(removed)
        for name, history in histories.items():
            horizon = min(history.horizon + random.randrange(25), 100)
            new = [(at, row) for at, table, row in world.changes if table == name and history.horizon < at <= horizon]
            cut = random.randrange(len(new) + 1)
            mixed = random.sample(range(len(new)), cut)
            parts = [[c for n, c in enumerate(new) if (n in mixed) is chosen] for chosen in (True, False)]
            history.advance([batch(CHANGE_TYPES[name], part) for part in parts], horizon)
        limit = min(matcher.horizon, 80)
        hi = min(matched_to + random.randrange(20), limit)
        if hi <= matched_to:
            continue
        events = [(tick, event) for tick, event in world.events if matched_to < tick <= hi]
        matches = matcher.match(batch(TYPES, events))
        pairs = [(events[n][0], s) for n, s in zip(matches.events.tolist(), matches.subscriptions, strict=True)]
        assert len(pairs) == len(set(pairs)), f"seed {seed}: pairs are repeated"
        expected = world.expected(filters, matched_to, hi)
        wrong = expected ^ set(pairs)
        assert not wrong, f"seed {seed}: {[(tick, filters[n].text) for tick, n in sorted(wrong)][:3]}"
        matched_to = hi
        if random.random() < 0.3:
            for history in histories.values():
                history.move_floor(min(matched_to, history.horizon))


@pytest.mark.parametrize("seed", range(scaled(60)))
def test_random_filters_find_what_the_slow_evaluator_finds(seed: int) -> None:
    run_world(seed)


@pytest.mark.parametrize("seed", range(scaled(10)))
def test_rows_that_have_left_for_good_are_removed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smile.broker.subscriptions.matching.table_history.COMPACTION_ROWS_MIN", 1)
    run_world(seed)


def plant_end_included(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Periods, "finish", lambda self, tick: self.ends.__setitem__(-1, tick + 1))


def plant_unknown_is_false(monkeypatch: pytest.MonkeyPatch) -> None:
    original = TableLookup.evaluate

    def evaluate(self: TableLookup, *args: Any) -> Any:
        found = original(self, *args)
        found.valid = None
        return found

    monkeypatch.setattr(TableLookup, "evaluate", evaluate)


def plant_current_contents(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table as it is now, not as of the event's tick."""
    monkeypatch.setattr(Periods, "contain", lambda self, _: bool(self.ends) and self.ends[-1] == 2**63 - 1)


def plant_rows_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is inserted twice is gone after one deletion."""
    original = TableHistory._apply

    def apply(self: TableHistory, tick: int, number: int, step: int) -> None:
        if not (step > 0 and self._counts[number] > 0):
            original(self, tick, number, step)

    monkeypatch.setattr(TableHistory, "_apply", apply)


def plant_deletions_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableIndex, "row_left", lambda *_: None)


MISTAKES = [
    plant_end_included,
    plant_unknown_is_false,
    plant_current_contents,
    plant_rows_counted_once,
    plant_deletions_ignored,
]


@pytest.mark.parametrize("plant", MISTAKES, ids=lambda plant: plant.__name__)
def test_planted_mistakes_are_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)

    def run_worlds() -> None:
        for seed in range(40):
            run_world(seed)

    with pytest.raises((AssertionError, KeyError)):
        run_worlds()


# ── work ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def examined(texts: Sequence[str], members: int) -> tuple[int, int]:
    """What is examined for 100 events that match one portfolio each, and the number of matches."""
    history = TableHistory(STREAMS["Portfolios"])
    rows = [(n + 1, {"change": "insert", "id": n, "symbol": f"S{n}", "least": n}) for n in range(members)]
    history.advance([batch(CHANGE_TYPES["Portfolios"], rows)], members)
    matcher: EventMatcher[int] = EventMatcher(COMPILED, "Quotes", {"Portfolios": history}.__getitem__)
    for number, text in enumerate(texts):
        matcher.add(number, text)
    before = matcher.examined
    matches = matcher.match(quotes(*((members + n, {"symbol": f"S{n % 10}"}) for n in range(100))))
    return matcher.examined - before, len(matches)


@pytest.mark.parametrize(
    "text",
    [
        "symbol IN (SELECT symbol FROM Portfolios WHERE id = {n})",
        "EXISTS (SELECT 1 FROM Portfolios p WHERE p.symbol = Quotes.symbol AND p.id = {n}) AND size > 0",
        "symbol = 'S{n}'",
        "symbol IN ('S{n}', 'T{n}') AND symbol NOT IN (SELECT symbol FROM Portfolios WHERE id = {n} + 1)",
        "symbol IN ('S{n}') AND price IS NULL AND size < 5",
        "symbol <= 'S0' AND size > {n}",
    ],
)
def test_work_does_not_depend_on_the_number_of_subscriptions(text: str) -> None:
    few, few_matches = examined([text.format(n=n) for n in range(10)], 500)
    many, many_matches = examined([text.format(n=n) for n in range(500)], 500)
    assert few_matches == many_matches > 0
    assert many == few <= 2 * (100 + many_matches)


def test_equal_filters_are_evaluated_once() -> None:
    text = "symbol IN (SELECT symbol FROM Portfolios WHERE id = 3)"
    one, matches = examined([text], 20)
    many, all_matches = examined([text.replace(" = ", "=")] * 50, 20)
    assert one == many
    assert all_matches == 50 * matches > 0


def test_filters_that_differ_only_in_constants_or_order_share_a_template() -> None:
    def template(text: str) -> Any:
        return check_filter(COMPILED, "Quotes", text).template

    one = template("symbol IN (SELECT symbol FROM Portfolios WHERE id = 7) AND size > 3 AND note = 'x'")
    assert one == template(
        "5 < size AND note IN ('y', 'z') AND symbol IN (SELECT p.symbol FROM Portfolios p WHERE 9 = p.id)"
    )
    assert one != template("symbol NOT IN (SELECT symbol FROM Portfolios WHERE id = 7) AND size > 3 AND note = 'x'")


# ── one case each ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_change_of_the_table_concerns_later_events_only() -> None:
    history = TableHistory(STREAMS["Portfolios"])
    matcher: EventMatcher[str] = EventMatcher(COMPILED, "Quotes", {"Portfolios": history}.__getitem__)
    matcher.add("seven", "symbol IN (SELECT symbol FROM Portfolios WHERE id = 7)")
    row = {"id": 7, "symbol": "IBM", "least": None}
    changes = [(10, {"change": "insert", **row}), (20, {"change": "delete", **row})]
    history.advance([batch(CHANGE_TYPES["Portfolios"], changes)], 50)
    matches = matcher.match(quotes(*((tick, {"symbol": "IBM"}) for tick in (9, 10, 11, 19, 20, 21))))
    assert matches.events.tolist() == [1, 2, 3]
    assert matcher.tables == ("Portfolios",)
    assert matcher.horizon == 50


def test_a_selection_is_filtered_by_its_own_columns() -> None:
    matcher: EventMatcher[str] = EventMatcher(COMPILED, "Large", NO_TABLES.__getitem__)
    matcher.add("four", "twice = 4 AND Large.symbol = 'A'")
    matcher.add("all", None)
    events = quotes((1, {"symbol": "A", "size": 1}), (2, {"symbol": "A", "size": 2}), (3, {"symbol": "B", "size": 3}))
    matches = matcher.match(events)
    assert sorted(zip(matches.events.tolist(), matches.subscriptions, strict=True)) == [
        (1, "all"),
        (1, "four"),
        (2, "all"),
    ]


def test_a_condition_is_a_further_part_of_the_filter() -> None:
    selection = find_selection(COMPILED, "Quotes")
    assert selection is not None
    matcher: EventMatcher[str] = EventMatcher(COMPILED, "Quotes", NO_TABLES.__getitem__)
    condition = parse_condition(selection.source, {"symbol": "A", "note": None})
    matcher.add("both", with_condition(parse_filter(COMPILED, selection, "size > 1"), condition, selection))
    events = quotes((1, {"symbol": "A", "size": 2}), (2, {"symbol": "A", "size": 2, "note": "x"}), (3, {"symbol": "A"}))
    assert matcher.match(events).events.tolist() == [0]


def test_the_stream_of_changes_can_be_filtered_by_its_own_table() -> None:
    history = TableHistory(STREAMS["Halted"])
    matcher: EventMatcher[str] = EventMatcher(COMPILED, "Halted", {"Halted": history}.__getitem__)
    matcher.add("again", "change = 'delete' AND symbol IN (SELECT symbol FROM Halted)")
    changes = [
        (n + 1, {"change": change, "symbol": "A"}) for n, change in enumerate(("insert", "insert", "delete", "delete"))
    ]
    events = batch(CHANGE_TYPES["Halted"], changes)
    history.advance([events], 4)
    assert matcher.match(events).events.tolist() == [2]


@pytest.mark.parametrize(
    ("text", "code", "excerpt"),
    [
        ("size >", "E010", ""),
        ("size = 'x'", "E033", "'x'"),
        ("colour = 'x'", "E022", "colour"),
        ("size + 1", "E031", "size + 1"),
        ("symbol IN (SELECT symbol FROM Portfolio)", "E021", "Portfolio"),
        ("symbol IN (SELECT change FROM Portfolios)", "E022", "change"),
        ("symbol IN (SELECT symbol FROM Sums)", "E145", "Sums"),
        ("symbol IN (SELECT symbol FROM Quotes)", "E145", "Quotes"),
        ("size > (SELECT MAX(least) FROM Portfolios)", "E145", "(SELECT MAX(least) FROM Portfolios)"),
        ("symbol IN (SELECT symbol FROM Portfolios GROUP BY symbol HAVING COUNT(*) > 1)", "E145", None),
        ("symbol IN (SELECT p.symbol FROM Portfolios p JOIN Halted h ON p.symbol = h.symbol)", "E145", None),
        ("SILENCE(t) > INTERVAL '1' SECOND", "E145", None),
        ("COUNT(*) > 1", "E042", None),
        ("size IN (" + "1, " * 5_000 + "1)", "E145", None),
        ("size = 1; size = 2", "E010", None),
        (" AND ".join(f"{c} IN ({', '.join(map(str, range(40)))})" for c in ("size", "size + 1")), "E145", None),
    ],
)
def test_a_filter_that_cannot_be_translated_says_why(text: str, code: str, excerpt: str | None) -> None:
    with pytest.raises(SmileError) as caught:
        check_filter(COMPILED, "Quotes", text)
    (problem,) = caught.value.diagnostics
    assert problem.code == code
    if excerpt is not None:
        assert problem.span is not None
        assert text[problem.span.start : problem.span.end] == excerpt


def test_a_view_that_is_no_selection_has_no_filters() -> None:
    with pytest.raises(SmileError) as caught:
        check_filter(COMPILED, "Sums", "total > 1")
    assert caught.value.diagnostics[0].code == "E142"


@pytest.mark.parametrize("columns", ["change INT, id INT", "id INT"])
def test_a_stream_of_changes_says_what_happens_to_the_row(columns: str) -> None:
    with pytest.raises(SmileError) as caught:
        compile_program(Source("wrong.sql", f"CREATE STREAM T (t TIME KEY, {columns}) WITH (CHANGES = TABLE);"))
    assert caught.value.diagnostics[0].code == "E144"


def test_equal_filters_have_equal_texts_whatever_the_table_is_called() -> None:
    renamed = compile_program(Source("other.sql", PROGRAM.replace("Portfolios", "Accounts"))).original
    text = "size IN (2, 1) AND symbol IN (SELECT symbol FROM Portfolios WHERE id = 7)"
    one = check_filter(COMPILED, "Quotes", text)
    assert (
        one.text == check_filter(renamed, "Quotes", text.replace("Portfolios", "Accounts").replace("2, 1", "1, 2")).text
    )
    assert one.text != check_filter(COMPILED, "Quotes", text.replace("7", "8")).text
