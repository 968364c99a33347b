"""State retention: which state is kept, until when, and how much of the log is needed."""

import pytest

from smile.algebra import mmpl, trees
from smile.algebra.parser import parse_program
from smile.analysis.check import check_program
from smile.analysis.log_retention import log_retentions
from smile.analysis.state_analysis import StateAnalysis
from smile.analysis.type_analysis import TypeAnalysis
from smile.analysis.warnings import program_warnings
from smile.knowledge.state_retention import StateRetention
from smile.rules import rewrite
from smile.source import Source

STREAMS = """
STREAM S (t: time -> a: int, k: string, d: int)
  CHECK d >= 0 AND d <= 6
  CHECK d IS NOT NULL;
STREAM R (u: time -> b: int, k: string, e: int, ref: time)
  CHECK e >= 0 AND e <= 6
  CHECK e IS NOT NULL;
"""

HOURLY = "S TUMBLE t SIZE INTERVAL '1' HOUR SUMMARIZE PER {window_end, k} ADD {n := COUNT()}"
SEALED = "n for each (window_end, k), until the horizon of S reaches window_end - 1"


def program(views: str) -> mmpl.Program:
    return rewrite(check_program(parse_program(Source("test.mmpl", STREAMS + views))))


def retained_state(views: str) -> list[StateRetention]:
    parsed = program(views)
    analysis = StateAnalysis(parsed, TypeAnalysis(parsed))
    return [
        state
        for view in parsed.views
        for node in reversed(list(trees.walk(view.body)))
        for state in analysis.state_of(node)
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("S WHERE a > 1", []),
        ("S SUMMARIZE PER {} ADD {n := COUNT()}", ["n, once, until the end"]),
        ("S SUMMARIZE PER {d} ADD {n := COUNT()}", ["n for each d, until the end"]),
        ("S SUMMARIZE PER {k} ADD {n := COUNT()}", ["n for each k, until the end: unbounded in k"]),
        (
            "S TUMBLE t SIZE INTERVAL '1' HOUR SUMMARIZE PER {window_end, k} ADD {m := MAX(a)}",
            ["m for each (window_end, k), until the horizon of S reaches window_end - 1"],
        ),
        (
            "S LAST t SIZE INTERVAL '1' HOUR SUMMARIZE PER {d} ADD {m := AVG(a)}",
            [
                "each row, until the horizon reaches t + INTERVAL '1' HOUR",
                "m, with all members, for each d, until its last member is hidden for good",
            ],
        ),
        (
            "S SUMMARIZE PER {d} ADD {n := COUNT()} SUMMARIZE PER {} ADD {m := MAX(n)}",
            ["n for each d, until the end", "m, with all members, once, until the end"],
        ),
        (
            "S LAST t SIZE INTERVAL '1' HOUR SUMMARIZE PER {k} ADD {m := MAX(a)}",
            [
                "each row, until the horizon reaches t + INTERVAL '1' HOUR",
                "m, with all members, for each k, until its last member is hidden for good",
            ],
        ),
        ("S BEST 3 BY a PER {}", ["the best 3 rows, until the end"]),
        ("S BEST 3 BY a PER {k}", ["the best 3 rows of each k, until the end: unbounded in k"]),
        ("S PROJECT {k} DISTINCT", ["a count of the rows for each k, until the end: unbounded in k"]),
        (
            "S SUMMARIZE PER {k} ADD {n := COUNT()} SUMMARIZE PER {n} ADD {m := COUNT()}",
            ["n for each k, until the end: unbounded in k", "each row, to group it by n, until the end"],
        ),
        (
            "S JOIN (R RENAME {k AS j}) ON {k = j} WHERE u >= t AND u <= t + INTERVAL '1' HOUR",
            [
                "each row of S by k, until the horizon of R reaches t + INTERVAL '1' HOUR",
                "each row of R by j, until the horizon of S reaches u",
            ],
        ),
        (
            "S JOIN (R RENAME {k AS j}) ON {k = j}",
            ["each row of S by k, until the end: unbounded in t", "each row of R by j, until the end: unbounded in u"],
        ),
        (
            "S ANTIJOIN (R RENAME {k AS j}) ON {t = ref}",
            ["each row of S by t, until it is hidden for good", "a count of the rows of R for each ref, until the horizon of S reaches ref"],
        ),
        (
            "S ASOF JOIN (R RENAME {k AS j}) ON {k = j} AT t >= u",
            [
                "each row of the left side, until the horizon of S reaches t and the horizon of R reaches t",
                "the latest row of the right side for each j, and those after it, until the end: unbounded in j",
            ],
        ),
        ("S SUMMARIZE PER {t} ADD {n := COUNT()}", []),
        ("S SUMMARIZE PER {d} ADD {n := COUNT(DISTINCT d)}", ["n, with the values counted, for each d, until the end"]),
        ("S SUMMARIZE PER {d} ADD {n := COUNT(DISTINCT a)}", ["n, with the values counted, for each d, until the end: unbounded in a"]),
        ("S SUMMARIZE PER {} ADD {n := COUNT(DISTINCT a + 1)}", ["n, with the values counted, once, until the end: unbounded in a + 1"]),
        ("S SUMMARIZE PER {} ADD {g := GROUP {t, a}}", ["g, with all members, once, until the end: unbounded in t"]),
        (
            "S LAST t SIZE INTERVAL '1' HOUR SUMMARIZE PER {d} ADD {m := MAX(a), n := COUNT(DISTINCT k)}",
            ["each row, until the horizon reaches t + INTERVAL '1' HOUR", "m and n, with all members, for each d, until its last member is hidden for good"],
        ),
        (
            "S SEMIJOIN (R LAST u SIZE INTERVAL '1' HOUR RENAME {k AS j}) ON {k = j} SUMMARIZE PER {d} ADD {m := MAX(a)}",
            [
                "each row, until the horizon reaches u + INTERVAL '1' HOUR",
                "each row of S by k, until the end: unbounded in t",
                "a count of the rows of the right side for each j, until the last of them is hidden for good",
                "m, with all members, for each d, until the end: unbounded in t",
            ],
        ),
        (
            f"{HOURLY} SUMMARIZE PER {{k}} ADD {{s := SUM(n)}}",
            [SEALED, "s for each k, until the end: unbounded in k"],
        ),
        (
            f"{HOURLY} SUMMARIZE PER {{n}} ADD {{s := COUNT()}}",
            [SEALED, "each row, to group it by n, until the end: unbounded in window_end"],
        ),
        (
            f"{HOURLY} BEST 3 BY n PER {{window_end}}",
            [SEALED, "each row of each window_end, until the horizon of S reaches window_end - 1"],
        ),
        (f"{HOURLY} BEST 3 BY n PER {{}}", [SEALED, "the best 3 rows, and those that may change, until the end"]),
        ("S LAST t SIZE INTERVAL '1' HOUR BEST 3 BY a PER {}", ["each row, until the horizon reaches t + INTERVAL '1' HOUR", "each row, until it is hidden for good"]),
        (
            "S SEMIJOIN R ON {d = e}",
            ["each row of S by d, until the end: unbounded in t", "a count of the rows of R for each e, until the end"],
        ),
        (
            "S SEMIJOIN (R RENAME {k AS j}) ON {k = j} WHEN b > a",
            ["each row of S by k, until the end: unbounded in t", "each row of R by j, until the end: unbounded in u"],
        ),
        ("S OVER PER {} BY t RANGE UNBOUNDED ADD {m := SUM(a)}", ["running totals, until the end"]),
        ("S OVER PER {} BY t RANGE UNBOUNDED ADD {m := COUNT(DISTINCT a)}", ["the rows, until the end: unbounded in t"]),
        (
            "S LAST t SIZE INTERVAL '1' HOUR OVER PER {} BY t RANGE UNBOUNDED ADD {m := SUM(a)}",
            ["each row, until the horizon reaches t + INTERVAL '1' HOUR", "the rows, until it is hidden for good"],
        ),
        (
            "S JOIN (R SUMMARIZE PER {ref} ADD {c := COUNT()} WHERE c < 3 RENAME {ref AS t}) ON {t}",
            [
                "c for each ref, until the end: unbounded in ref",
                "each row of S by t, until the end: unbounded in t",
                "each row of the right side by t, until the horizon of S reaches t",
            ],
        ),
        (
            "S LEFT JOIN (R SUMMARIZE PER {ref} ADD {c := COUNT()} WHERE c < 3 RENAME {ref AS t}) ON {t}",
            [
                "c for each ref, until the end: unbounded in ref",
                "each row of S by t, until the end: unbounded in t",
                "each row of the right side by t, until the end",
            ],
        ),
        ("S OVER PER {k} BY t RANGE INTERVAL '1' HOUR ADD {m := SUM(a)}", ["the rows of each k, until the horizon reaches t + INTERVAL '1' HOUR"]),
        ("S SILENCE {q := t PER {k} > INTERVAL '3' MINUTE} WHERE q", ["the last row of each k, until the horizon reaches t + INTERVAL '3' MINUTE"]),
    ],
)  # fmt: skip
def test_state(body: str, expected: list[str]) -> None:
    states = retained_state(f"VIEW V := {body}; SUBSCRIBE V;")
    assert [
        f"{s.description}, until {s.until}" + (f": unbounded in {s.unbounded.column}" if s.unbounded else "")
        for s in states
    ] == expected


MATCHED = """
VIEW T := R SUMMARIZE PER {{ref}} ADD {{total := COUNT()}};
VIEW V := S JOIN (T RENAME {{ref AS t}}) ON {{t}} EXTEND {{rest := d - total}} WHERE rest > 0 PROJECT {{t, rest}};
SUBSCRIBE {subscribed};
"""


def test_a_group_is_needed_until_its_only_reader_hides_the_row_for_good() -> None:
    assert [s.until for s in retained_state(MATCHED.format(subscribed="V"))] == ["V hides the row for good"] * 2


def test_but_not_if_the_group_itself_is_subscribed_to() -> None:
    group, rows = retained_state(MATCHED.format(subscribed="T, V"))
    assert group.until == "the end"
    assert group.unbounded is not None
    assert rows.until == "V hides the row for good"


def test_nor_if_one_group_meets_many_rows() -> None:
    group, rows = retained_state(
        "VIEW T := R SUMMARIZE PER {k} ADD {total := COUNT()};"
        "VIEW V := S PROJECT {t, k, a} JOIN T ON {k} EXTEND {rest := 6 - total} WHERE rest > 0; SUBSCRIBE V;"
    )
    assert group.until == "the end"
    assert rows.until == "V hides the row for good"


def test_nor_if_more_than_a_row_of_the_group_is_stored() -> None:
    group, *_ = retained_state(MATCHED.format(subscribed="V").replace("COUNT()", "COUNT(DISTINCT k)"))
    assert group.until == "the end"
    assert group.unbounded is not None


def test_a_join_may_keep_groups_that_were_dropped() -> None:
    states = retained_state(
        "VIEW E := S TUMBLE t SIZE INTERVAL '1' HOUR SUMMARIZE PER {window_end} ADD {n := COUNT()};"
        "VIEW V := R PROJECT {u, ref} JOIN (E RENAME {window_end AS ref}) ON {ref}; SUBSCRIBE V;"
    )
    assert [(s.until, s.unbounded is not None) for s in states] == [
        ("the horizon of S reaches window_end - 1", False),
        ("the horizon of S reaches ref - 1", False),
        ("the end", True),
    ]


@pytest.mark.parametrize(
    ("body", "need"),
    [
        ("S WHERE a > 1", "nothing at or below the horizon of S"),
        ("S TUMBLE t SIZE INTERVAL '1' HOUR SUMMARIZE PER {window_start} ADD {m := MAX(a)}", "the last INTERVAL '1' HOUR below the horizon of S"),
        ("S LAST t SIZE INTERVAL '2' MINUTE", "the last INTERVAL '2' MINUTE below the horizon of S"),
        ("S SUMMARIZE PER {k} ADD {n := COUNT()}", "all of it, or a hard checkpoint: V has no last tick in S"),
        ("R", "nothing: no subscribed view reads it"),
        (
            "S JOIN (R RENAME {k AS j}) ON {k = j} WHERE u >= t AND u <= t + INTERVAL '1' HOUR",
            "the last INTERVAL '1' HOUR below the horizon of the least of S, R",
        ),
        ("S OVER PER {} BY t RANGE INTERVAL '1' HOUR ADD {m := SUM(a)}", "the last INTERVAL '1' HOUR below the horizon of S"),
        (
            "S ASOF JOIN (R RENAME {k AS j}) ON {k = j} AT t >= u",
            "nothing at or below the horizon of the least of S, R",
        ),
    ],
)  # fmt: skip
def test_log(body: str, need: str) -> None:
    parsed = program(f"VIEW V := {body}; SUBSCRIBE V;")
    assert str(log_retentions(parsed, TypeAnalysis(parsed))[0]) == need


def test_a_right_row_of_an_as_of_join_may_be_needed_for_ever() -> None:
    parsed = program("VIEW V := S ASOF JOIN (R RENAME {k AS j}) ON {k = j} AT t >= u; SUBSCRIBE V;")
    assert str(log_retentions(parsed, TypeAnalysis(parsed))[1]).startswith("all of it, or a hard checkpoint")


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        ("d >= 0", "d >= 0 is always true, whatever is published"),
        ("d < 0", "d < 0 is always false, whatever is published"),
        ("7 > d", "7 > d is always true, whatever is published"),
        ("d = 9", "d = 9 is always false, whatever is published"),
        ("d > 0", None),
        ("d <= 5", None),
        ("a >= 0", None),
        ("t >= TIME '0'", "t >= TIME '0' is always true, whatever is published"),
    ],
)
def test_predicates_that_the_types_decide(predicate: str, message: str | None) -> None:
    parsed = program(f"VIEW V := S WHERE {predicate}; SUBSCRIBE V;")
    assert [w.message for w in program_warnings(parsed, TypeAnalysis(parsed))] == ([message] if message else [])


def test_a_group_that_is_hidden_for_good_must_not_start_again() -> None:
    (group,) = retained_state("VIEW V := S SUMMARIZE PER {k} ADD {n := COUNT()} WHERE n < 10; SUBSCRIBE V;")
    assert group.unbounded is not None
    groups = retained_state(
        "VIEW V := S SUMMARIZE PER {k} ADD {n := COUNT()} JOIN (R SUMMARIZE PER {k} ADD {m := COUNT()}) ON {k}"
        " WHERE n + m < 10; SUBSCRIBE V;"
    )
    assert [s.until for s in groups if s.description in ("n for each k", "m for each k")] == ["the end"] * 2


def test_rows_that_still_evolve_are_kept_for_over_and_as_of() -> None:
    evolving = "VIEW E := S JOIN (R SUMMARIZE PER {ref} ADD {c := COUNT()} RENAME {ref AS t}) ON {t};"
    over = retained_state(
        evolving + "VIEW V := E OVER PER {} BY t RANGE INTERVAL '1' HOUR ADD {m := SUM(c)}; SUBSCRIBE V;"
    )
    assert over[-1].until == "the end"
    asof = retained_state(evolving + "VIEW V := R RENAME {k AS j} ASOF JOIN E ON {j = k} AT u >= t; SUBSCRIBE V;")
    assert [s.until for s in asof[-2:]] == ["the end", "the end"]


@pytest.mark.parametrize(
    ("checks", "body", "need"),
    [
        (
            "CHECK t <= TIME '99'",
            "S SUMMARIZE PER {k} ADD {n := COUNT()}",
            "all of it, or a hard checkpoint: V is sealed at tick 99",
        ),
        (
            "CHECK o <= t AND o >= t - INTERVAL '1' MINUTE",
            "S SUMMARIZE PER {o} ADD {n := COUNT()}",
            "all of it, or a hard checkpoint: rows of V whose o is NULL",
        ),
        (
            "CHECK o IS NOT NULL CHECK o <= t AND o >= t - INTERVAL '1' MINUTE",
            "S SUMMARIZE PER {o} ADD {n := COUNT()}",
            "the last INTERVAL '1' MINUTE",
        ),
    ],
)
def test_log_of_checked_streams(checks: str, body: str, need: str) -> None:
    text = f"STREAM S (t: time -> k: string, o: time) {checks}; VIEW V := {body}; SUBSCRIBE V;"
    parsed = check_program(parse_program(Source("test.mmpl", text)))
    assert str(log_retentions(parsed, TypeAnalysis(parsed))[0]).startswith(need)
