"""Type analysis, including the worked examples of the papers, figure by figure."""

import pytest

from smile.algebra.parser import parse_program
from smile.analysis.check import check_program
from smile.analysis.type_analysis import TypeAnalysis
from smile.errors import SmileError
from smile.knowledge.symbolic import Bound
from smile.knowledge.types import Direction, MaskDirection, RelationType
from smile.source import Source

TRADEFLOOR = """
STREAM BuyBids (buyid: time -> issue: string, price: int, #bid: int)
  CHECK price >= 0
  CHECK #bid >= 0{bid};
STREAM Matches (t: time -> buyid: time, sellid: time, #traded: int)
  CHECK #traded >= 0{traded}{ticks};
VIEW BuySatisfied :=
  Matches
  SUMMARIZE PER {{buyid}} ADD {{total := SUM(#traded)}};
VIEW Remaining :=
  BuyBids
  JOIN BuySatisfied ON {{buyid}}
  EXTEND {{buyremaining := CAST(#bid AS decimal(19, 0)) - total}};
VIEW RemainingBuy :=
  Remaining
  WHERE buyremaining > DECIMAL(38, 0) '0'
  PROJECT {{buyid, issue, price, buyremaining}};
"""


def analyse(text: str) -> dict[str, RelationType]:
    return TypeAnalysis(check_program(parse_program(Source("test.mmpl", text)))).relations


def view(body: str, streams: str = "") -> RelationType:
    default = """
        STREAM S (t: time -> a: int, n: int, k: string, at: time)
          CHECK n >= 0 AND n <= 10
          CHECK at >= t - INTERVAL '5' MINUTE AND at <= t;
        STREAM R (u: time -> b: int, k: string, ref: time);
    """
    return analyse(f"{streams or default} VIEW V := {body};")["V"]


# ── smile.txt §3.1 ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def tradefloor() -> dict[str, RelationType]:
    return analyse(TRADEFLOOR.format(bid="", traded="", ticks=""))


def test_stream_columns_evolve_once(tradefloor: dict[str, RelationType]) -> None:
    bid = tradefloor["BuyBids"].columns["#bid"]
    assert (bid.domain, str(bid.range), str(bid.steps)) == ("once", "[0..MAXBID]", "1")


def test_total_is_a_range_with_at_most_maxtime_steps(tradefloor: dict[str, RelationType]) -> None:
    total = tradefloor["BuySatisfied"].columns["total"]
    assert (total.domain, str(total.range), str(total.steps)) == ("range", "[0..MAXTIME*MAXTRADED]", "MAXTIME")
    assert total.direction is Direction.UP


def test_buyremaining_has_one_step_more_and_is_not_clamped(tradefloor: dict[str, RelationType]) -> None:
    remaining = tradefloor["Remaining"].columns["buyremaining"]
    assert str(remaining.range) == "[-MAXTIME*MAXTRADED..MAXBID]"
    assert str(remaining.steps) == "MAXTIME + 1"
    assert remaining.direction is Direction.DOWN


def test_the_mask_has_two_steps_and_falls_for_good(tradefloor: dict[str, RelationType]) -> None:
    mask = tradefloor["RemainingBuy"].mask
    assert mask.direction is MaskDirection.FALLS
    assert mask.falls_for_good
    assert mask.steps == Bound.from_number(2)


def test_final_true_is_not_possible_while_maxtime_is_unbounded(tradefloor: dict[str, RelationType]) -> None:
    assert not tradefloor["RemainingBuy"].mask.can_be_final_true


def test_with_numbers_where_the_domains_give_them() -> None:
    bounded = " AND #traded <= 50", " AND #bid <= 900", "\n  CHECK t >= TIME '0' AND t <= TIME '99'"
    relations = analyse(TRADEFLOOR.format(traded=bounded[0], bid=bounded[1], ticks=bounded[2]))
    total = relations["BuySatisfied"].columns["total"]
    assert (str(total.range), str(total.steps)) == ("[0..5000]", "100")
    remaining = relations["Remaining"].columns["buyremaining"]
    assert (str(remaining.range), str(remaining.steps)) == ("[-5000..900]", "101")
    assert str(relations["RemainingBuy"].seals["Matches"]) == "99"
    assert relations["RemainingBuy"].mask.can_be_final_true


# ── relational-subscriptions.txt Fig. 2 ─────────────────────────────────────────────────────────────────────────────

THREE = "STREAM S (t: time -> a: int) CHECK t >= TIME '0' AND t <= TIME '2' CHECK a >= 0 AND a <= 3;"


def test_fig_2b_max_over_0_to_3() -> None:
    high = view("S SUMMARIZE PER {} ADD {high := MAX(a)}", THREE).columns["high"]
    assert (high.domain, str(high.range), high.direction) == ("upper", "[0..3]", Direction.UP)


def test_fig_2c_count_of_three_rows() -> None:
    count = view("S SUMMARIZE PER {} ADD {n := COUNT()}", THREE).columns["n"]
    assert (count.domain, str(count.range), str(count.steps)) == ("range", "[0..3]", "3")


# ── seals ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "seals"),
    [
        ("S", {"S": "t"}),
        ("S WHERE a > 1 PROJECT {a}", {"S": "t"}),
        ("S RENAME {t AS x}", {"S": "x"}),
        ("S SUMMARIZE PER {k} ADD {n2 := COUNT()}", {"S": "never"}),
        ("S SUMMARIZE PER {t} ADD {n2 := COUNT()}", {"S": "t"}),
        ("S TUMBLE t SIZE INTERVAL '1' HOUR SUMMARIZE PER {window_end} ADD {m := MAX(a)}", {"S": "window_end - 1"}),
        (
            "S TUMBLE t SIZE INTERVAL '1' HOUR SUMMARIZE PER {window_start} ADD {m := MAX(a)}",
            {"S": "window_start + INTERVAL '1' HOUR - 1"},
        ),
        (
            "S TUMBLE t SIZE INTERVAL '1' HOUR SUMMARIZE PER {window_start, k} ADD {m := MAX(a)} "
            "SUMMARIZE PER {window_start} ADD {s := SUM(m)}",
            {"S": "window_start + INTERVAL '1' HOUR - 1"},
        ),
        (
            "S TUMBLE at SIZE INTERVAL '1' HOUR SUMMARIZE PER {window_end} ADD {m := MAX(a)}",
            {"S": "window_end + INTERVAL '5' MINUTE - 1"},
        ),
        ("R TUMBLE ref SIZE INTERVAL '1' HOUR SUMMARIZE PER {window_end} ADD {m := MAX(b)}", {"R": "never"}),
        ("S LAST t SIZE INTERVAL '1' HOUR", {"S": "t + INTERVAL '1' HOUR"}),
        ("S OVER PER {k} BY t RANGE INTERVAL '1' HOUR ADD {m := SUM(a)}", {"S": "t"}),
        ("S OVER PER {k} BY t RANGE UNBOUNDED ADD {m := SUM(a)}", {"S": "t"}),
        ("S SILENCE {q := t PER {} > INTERVAL '3' MINUTE} WHERE q", {"S": "t + INTERVAL '3' MINUTE"}),
        ("S BEST 2 BY a PER {k}", {"S": "never"}),
        (
            "S TUMBLE t SIZE INTERVAL '1' HOUR BEST 2 BY a PER {window_end}",
            {"S": "the later of t and window_end - 1"},
        ),
        ("S JOIN R ON {k}", {"S": "t", "R": "u"}),
        ("S JOIN (R RENAME {k AS j}) ON {t = ref}", {"S": "t", "R": "u"}),
        ("S ANTIJOIN (R RENAME {k AS j}) ON {t = ref}", {"S": "t", "R": "never"}),
        (
            "S ANTIJOIN (R RENAME {k AS j}) ON {t = ref} WHEN u <= t + INTERVAL '10' MINUTE",
            {"S": "t", "R": "t + INTERVAL '10' MINUTE"},
        ),
        (
            "S LEFT JOIN (R RENAME {k AS j}) ON {k = j} WHEN u < t + INTERVAL '10' MINUTE",
            {"S": "t", "R": "t + INTERVAL '10' MINUTE - 1"},
        ),
        (
            "S JOIN (R RENAME {k AS j}) ON {k = j} WHERE u <= t + INTERVAL '1' MINUTE "
            "SUMMARIZE PER {t} ADD {n2 := COUNT()}",
            {"S": "t", "R": "t + INTERVAL '1' MINUTE"},
        ),
        ("S ASOF JOIN (R RENAME {k AS j}) ON {k = j} AT t >= u", {"S": "t", "R": "t"}),
        ("S PROJECT {k} DISTINCT", {"S": "never"}),
        ("S WHERE t <= TIME '500' SUMMARIZE PER {k} ADD {n2 := COUNT()}", {"S": "500"}),
        ("UNION {S PROJECT {k}, R PROJECT {k}}", {"S": "t", "R": "u"}),
        ("S PROJECT {k, a} SUMMARIZE PER {k} ADD {m := MAX(a)} JOIN R ON {k}", {"S": "never", "R": "u"}),
    ],
)
def test_seals(body: str, seals: dict[str, str]) -> None:
    assert {stream: str(seal) for stream, seal in view(body).seals.items()} == seals


# ── masks, directions, evolution ────────────────────────────────────────────────────────────────────────────────────

COUNTED = "S SUMMARIZE PER {k} ADD {c := COUNT(), s := SUM(n), lo := MIN(n), hi := MAX(n), m := AVG(n), l := LATEST(n)}"


@pytest.mark.parametrize(
    ("predicate", "direction"),
    [
        ("c > 3", MaskDirection.RISES),
        ("c >= 3", MaskDirection.RISES),
        ("3 < c", MaskDirection.RISES),
        ("c < 3", MaskDirection.FALLS),
        ("3 >= c", MaskDirection.FALLS),
        ("c = 3", MaskDirection.PEAKS),
        ("c <> 3", MaskDirection.EITHER),
        ("NOT c < 3", MaskDirection.RISES),
        ("s > DECIMAL(38, 0) '5'", MaskDirection.RISES),
        ("c > 3 AND s < DECIMAL(38, 0) '5'", MaskDirection.PEAKS),
        ("c > 3 OR s > DECIMAL(38, 0) '5'", MaskDirection.RISES),
        ("c > 3 OR s < DECIMAL(38, 0) '5'", MaskDirection.EITHER),
        ("hi > 3", MaskDirection.EITHER),  # a maximum of values that may be NULL begins as NULL
        ("m > FLOAT '3.0'", MaskDirection.EITHER),
        ("l > 3", MaskDirection.EITHER),
        ("k = 'x'", MaskDirection.DECIDED),
        ("c * 2 > 3", MaskDirection.RISES),
        ("c * -2 > 3", MaskDirection.FALLS),
        ("CAST(c AS decimal(19, 0)) - s > DECIMAL(38, 0) '0'", MaskDirection.EITHER),
        ("CASE WHEN c > 3 THEN TRUE ELSE FALSE END", MaskDirection.EITHER),
    ],
)
def test_how_a_predicate_over_aggregates_moves(predicate: str, direction: MaskDirection) -> None:
    assert view(f"{COUNTED} WHERE {predicate}").mask.direction is direction


def test_aggregates_of_rows_that_can_leave_have_no_direction() -> None:
    leaving = view("S LAST t SIZE INTERVAL '1' HOUR SUMMARIZE PER {k} ADD {c := COUNT(), hi := MAX(n)}")
    assert {leaving.columns[c].direction for c in ("c", "hi")} == {Direction.EITHER}
    assert leaving.columns["hi"].domain == "range"
    assert leaving.mask.direction is MaskDirection.EITHER


def test_a_group_of_one_row_does_not_evolve() -> None:
    single = view("S SUMMARIZE PER {t} ADD {c := COUNT(), s := SUM(n)}")
    assert [single.columns[c].evolves for c in ("t", "c", "s")] == [False, False, False]


def test_window_bounds_the_steps() -> None:
    hourly = view("S TUMBLE t SIZE INTERVAL '1' SECOND SUMMARIZE PER {window_start} ADD {c := COUNT()}")
    assert str(hourly.columns["c"].steps) == str(1_024_000_000)


def test_columns_of_a_left_join_may_change_from_null() -> None:
    joined = view("S LEFT JOIN (R RENAME {k AS j}) ON {t = ref}")
    assert joined.columns["b"].evolves
    assert not joined.columns["a"].evolves


def test_a_default_row_has_sum_and_count_0_and_the_rest_unknown() -> None:
    joined = view("R JOIN (S SUMMARIZE PER {k} ADD {c := COUNT(), s := SUM(n), hi := MAX(n)}) ON {k}")
    assert [joined.columns[c].null_evolves for c in ("c", "s", "hi")] == [False, False, True]
    assert joined.mask.direction is MaskDirection.DECIDED


def test_a_product_with_a_key_has_a_direction_only_for_keys_that_groups_can_have() -> None:
    streams = """
        STREAM S (t: time -> n: int) CHECK n >= 0 AND n <= 10;
        STREAM R (u: time -> any: int, m: int) CHECK m >= 0 AND m <= 10;
    """
    weights = "S SUMMARIZE PER {n} ADD {c := COUNT()} EXTEND {w := n * c} EXTEND {heavy := w > 5}"
    weight, heavy = (view(weights, streams).columns[c] for c in ("w", "heavy"))
    assert weight.direction is Direction.UP
    assert heavy.mask is not None and heavy.mask.direction is MaskDirection.RISES
    assert view(f"R JOIN ({weights}) ON {{m = n}}", streams).columns["w"].direction is Direction.UP
    joined = view(f"R JOIN ({weights}) ON {{any = n}}", streams).columns
    assert joined["w"].direction is Direction.EITHER
    assert joined["w"].null_evolves
    assert joined["heavy"].mask is not None and joined["heavy"].mask.direction is MaskDirection.EITHER
    assert joined["c"].direction is Direction.UP


def test_falling_out_of_the_best_is_for_good_only_over_rows_that_stay() -> None:
    assert view("S BEST 2 BY a PER {}").mask.falls_for_good
    assert not view("S LAST t SIZE INTERVAL '1' HOUR BEST 2 BY a PER {}").mask.falls_for_good


def test_silence_needs_a_history() -> None:
    with pytest.raises(SmileError) as problem:
        view("S LAST t SIZE INTERVAL '1' HOUR SILENCE {q := t PER {} > INTERVAL '3' MINUTE}")
    assert problem.value.diagnostics[0].code == "E045"


def test_a_key_of_a_union_must_not_evolve() -> None:
    with pytest.raises(SmileError) as problem:
        view(
            "UNION {S SUMMARIZE PER {k} ADD {c := COUNT()} PROJECT {c}, "
            "R SUMMARIZE PER {b} ADD {x := COUNT()} RENAME {b AS c} PROJECT {c}}"
        )
    assert problem.value.diagnostics[0].code == "E040"


# ── NULL, casts and units ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("stream", "body", "seal"),
    [
        # nothing follows through u, which may be NULL
        (
            "u: time, z: time) CHECK z IS NOT NULL CHECK t <= u + INTERVAL '5' TICK CHECK u <= z",
            "S SUMMARIZE PER {z} ADD {n := COUNT()}",
            "never",
        ),
        (
            "u: time, z: time) CHECK z IS NOT NULL CHECK u IS NOT NULL CHECK t <= u + INTERVAL '5' TICK CHECK u <= z",
            "S SUMMARIZE PER {z} ADD {n := COUNT()}",
            "z + 5",
        ),
        # a window has no row whose time is NULL
        (
            "u: time) CHECK t <= u + INTERVAL '5' TICK",
            "S TUMBLE u SIZE INTERVAL '10' TICK SUMMARIZE PER {window_end} ADD {n := COUNT()}",
            "window_end + 4",
        ),
        (
            "u: time) CHECK t <= u + INTERVAL '5' TICK",
            "S WHERE u > TIME '3' EXTEND {d := u + INTERVAL '1' TICK} SUMMARIZE PER {d} ADD {n := COUNT()}",
            "d + 4",
        ),
        # three microseconds are 4,095 ticks at most, not three
        (
            "a: int) CHECK CAST(t AS timestamp) <= TIMESTAMP '1970-01-01 00:00:00.000003'",
            "S SUMMARIZE PER {} ADD {n := COUNT()}",
            "4095",
        ),
    ],
)
def test_seals_of_checked_streams(stream: str, body: str, seal: str) -> None:
    assert str(view(body, f"STREAM S (t: time -> {stream};").seals["S"]) == seal


def test_not_in_is_never_sealed_if_a_null_may_come() -> None:
    streams = "STREAM O (o: time -> c: int); STREAM P (p: time -> id: time) CHECK p <= id + INTERVAL '1' MINUTE{};"
    body = "O ANTIJOIN P ON {o = id} NULL AWARE"
    assert view(body, streams.format("")).seals["P"].is_never
    assert str(view(body, streams.format(" CHECK id IS NOT NULL")).seals["P"]) == "o + INTERVAL '1' MINUTE"


def test_any_number_of_rows_are_in_the_group_of_null() -> None:
    assert (
        str(
            view("S SUMMARIZE PER {o} ADD {n := COUNT()}", "STREAM S (t: time -> o: time) CHECK o = t;")
            .columns["n"]
            .range
        )
        == "[0..MAXTIME]"
    )


def test_a_cast_bounds_a_column_only_if_it_leaves_values_as_they_are() -> None:
    text = "STREAM S (t: time -> d: decimal(5, 2), i: int) CHECK CAST(d AS int) <= 5 CHECK CAST(i AS decimal(19, 0)) <= DECIMAL(19, 0) '5';"
    columns = view("S", text).columns
    assert str(columns["d"].range) == "[MIND..MAXD]"
    assert str(columns["i"].range) == "[MINI..5]"


def test_timestamps_and_intervals_have_different_units() -> None:
    text = "STREAM S (t: time -> u: timestamp) CHECK u >= TIMESTAMP '2024-01-01 00:00:00' CHECK u <= TIMESTAMP '2024-01-02 00:00:00';"
    assert str(view("S EXTEND {v := u + INTERVAL '1' HOUR}", text).columns["v"].range) == "[-∞..∞]"


def test_an_as_of_join_by_what_evolves_may_lose_its_match() -> None:
    streams = "STREAM A (t: time -> k: int); STREAM B (u: time -> j: int, w: int);"
    body = "A JOIN (B SUMMARIZE PER {j} ADD {m := COUNT()} RENAME {j AS k}) ON {k} ASOF JOIN B ON {m = j} AT t >= u"
    assert view(body, streams).mask.direction is MaskDirection.EITHER


def test_a_union_of_what_rises_and_what_falls_may_do_both() -> None:
    counted = "S SUMMARIZE PER {k} ADD {c := COUNT()} WHERE c"
    assert view(f"UNION {{{counted} > 3, {counted} < 3}}").mask.direction is MaskDirection.PEAKS


def test_a_column_named_time_is_not_the_last_tick() -> None:
    assert str(view("S", "STREAM S (t: time -> time: int);").columns["time"].range) == "[MINTIME..MAXTIMEVALUE]"


COUNTS = "S SUMMARIZE PER {k} ADD {c := COUNT()} PROJECT {c} DISTINCT"


@pytest.mark.parametrize("predicate", ["c > 4611686018427387904", "c = 4611686018427387904", "c > 9007199254740992"])
def test_a_predicate_that_no_count_meets_narrows_nothing(predicate: str) -> None:
    """MAXTIME is a symbol, but not above 2^53. A range in which there is no value would be a contradiction."""
    following = view(f"{COUNTS} WHERE {predicate} EXTEND {{d := c + 1}}").columns
    assert str(following["c"].shown_range) == str(view(COUNTS).columns["c"].shown_range)
    assert str(following["d"].range) == str(view(f"{COUNTS} EXTEND {{d := c + 1}}").columns["d"].range)
    chosen = view(f"S SUMMARIZE PER {{k}} ADD {{c := COUNT()}} EXTEND {{d := CASE WHEN {predicate} THEN c ELSE 0 END}}")
    assert str(chosen.columns["d"].range) == "[0..MAXTIME]"


def test_a_range_narrowed_by_a_great_number_keeps_its_extreme() -> None:
    range_ = view(f"{COUNTS} WHERE c < 4611686018427387904").columns["c"].range
    assert range_ is not None and not range_.is_empty
    assert (range_.hi.number, range_.hi.extreme) == (2**62 - 1, 2**53)
