"""What is remembered, until when, and what the log must keep."""

import pytest

from smile.algebra import mmpl, trees
from smile.algebra.check import checked
from smile.algebra.parser import parse_program
from smile.algebra.rules import rewrite
from smile.knowledge.analysis import Analysis
from smile.knowledge.log_needs import log_needs
from smile.knowledge.memory import Memories, Memory
from smile.knowledge.warnings import warnings
from smile.source import Source

STREAMS = """
STREAM S (t: time -> a: int, k: string, d: int)
  CHECK d >= 0 AND d <= 6
  CHECK d IS NOT NULL;
STREAM R (u: time -> b: int, k: string, ref: time);
"""


def program(views: str) -> mmpl.Program:
    return rewrite(checked(parse_program(Source("test.mmpl", STREAMS + views))))


def remembered(views: str) -> list[Memory]:
    found = program(views)
    memories = Memories(found, Analysis(found))
    return [m for view in found.views for node in reversed(list(trees.walk(view.body))) for m in memories.of(node)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("S WHERE a > 1", []),
        ("S SUMMARIZE PER {} ADD {n := COUNT()}", ["n, once, until the end"]),
        ("S SUMMARIZE PER {d} ADD {n := COUNT()}", ["n for each d, until the end"]),
        ("S SUMMARIZE PER {k} ADD {n := COUNT()}", ["n for each k, until the end: endless in k"]),
        (
            "S TUMBLE t SIZE INTERVAL '1' HOUR SUMMARIZE PER {window_end, k} ADD {m := MAX(a)}",
            ["m for each (window_end, k), until the horizon of S reaches window_end - 1"],
        ),
        (
            "S LAST t SIZE INTERVAL '1' HOUR SUMMARIZE PER {k} ADD {m := MAX(a)}",
            [
                "each row, until the horizon reaches t + INTERVAL '1' HOUR",
                "m, with all members, for each k, until its last member is hidden for good",
            ],
        ),
        ("S BEST 3 BY a PER {}", ["the best 3 rows, until the end"]),
        ("S BEST 3 BY a PER {k}", ["the best 3 rows of each k, until the end: endless in k"]),
        ("S PROJECT {k} DISTINCT", ["a count of the rows for each k, until the end: endless in k"]),
        (
            "S SUMMARIZE PER {k} ADD {n := COUNT()} SUMMARIZE PER {n} ADD {m := COUNT()}",
            ["n for each k, until the end: endless in k", "m for each n, until the end"],
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
            ["each row of S by k, until the end: endless in t", "each row of R by j, until the end: endless in u"],
        ),
        (
            "S ANTIJOIN (R RENAME {k AS j}) ON {t = ref}",
            ["each row of S by t, until it is hidden for good", "each row of R by ref, until the horizon of S reaches ref"],
        ),
        (
            "S ASOF JOIN (R RENAME {k AS j}) ON {k = j} AT t >= u",
            [
                "each row of the left side, until the horizon of S reaches t and the horizon of R reaches t",
                "the latest row of the right side for each j, and those after it, until the end: endless in j",
            ],
        ),
        ("S OVER PER {k} BY t RANGE INTERVAL '1' HOUR ADD {m := SUM(a)}", ["the rows of each k, until the horizon reaches t + INTERVAL '1' HOUR"]),
        ("S SILENCE {q := t PER {k} > INTERVAL '3' MINUTE} WHERE q", ["the last row of each k, until the horizon reaches t + INTERVAL '3' MINUTE"]),
    ],
)  # fmt: skip
def test_remembered(body: str, expected: list[str]) -> None:
    found = remembered(f"VIEW V := {body}; SUBSCRIBE V;")
    assert [
        f"{m.what}, until {m.until}" + (f": endless in {m.endless.column}" if m.endless else "") for m in found
    ] == expected


MATCHED = """
VIEW T := R SUMMARIZE PER {{ref}} ADD {{total := COUNT()}};
VIEW V := S JOIN (T RENAME {{ref AS t}}) ON {{t}} EXTEND {{rest := d - total}} WHERE rest > 0 PROJECT {{t, rest}};
SUBSCRIBE {subscribed};
"""


def test_a_group_is_needed_until_its_only_reader_hides_the_row_for_good() -> None:
    assert [m.until for m in remembered(MATCHED.format(subscribed="V"))] == ["V hides the row for good"] * 2


def test_but_not_if_somebody_subscribes_to_the_group_itself() -> None:
    group, rows = remembered(MATCHED.format(subscribed="T, V"))
    assert group.until == "the end"
    assert group.endless is not None
    assert rows.until == "V hides the row for good"


def test_nor_if_one_group_meets_many_rows() -> None:
    group, *_ = remembered(
        "VIEW T := R SUMMARIZE PER {k} ADD {total := COUNT()};"
        "VIEW V := S JOIN T ON {k} EXTEND {rest := d - total} WHERE rest > 0; SUBSCRIBE V;"
    )
    assert group.until == "the end"


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
    found = program(f"VIEW V := {body}; SUBSCRIBE V;")
    assert str(log_needs(found, Analysis(found))[0]) == need


def test_a_right_row_of_an_as_of_join_may_be_needed_for_ever() -> None:
    found = program("VIEW V := S ASOF JOIN (R RENAME {k AS j}) ON {k = j} AT t >= u; SUBSCRIBE V;")
    assert str(log_needs(found, Analysis(found))[1]).startswith("all of it, or a hard checkpoint")


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
    found = program(f"VIEW V := S WHERE {predicate}; SUBSCRIBE V;")
    assert [w.message for w in warnings(found, Analysis(found))] == ([message] if message else [])


def test_a_group_that_is_hidden_for_good_must_not_start_again() -> None:
    (group,) = remembered("VIEW V := S SUMMARIZE PER {k} ADD {n := COUNT()} WHERE n < 10; SUBSCRIBE V;")
    assert group.endless is not None
    groups = remembered(
        "VIEW V := S SUMMARIZE PER {k} ADD {n := COUNT()} JOIN (R SUMMARIZE PER {k} ADD {m := COUNT()}) ON {k}"
        " WHERE n + m < 10; SUBSCRIBE V;"
    )
    assert [m.until for m in groups if m.what in ("n for each k", "m for each k")] == ["the end"] * 2


def test_rows_that_still_evolve_are_kept_for_over_and_as_of() -> None:
    evolving = "VIEW E := S JOIN (R SUMMARIZE PER {ref} ADD {c := COUNT()} RENAME {ref AS t}) ON {t};"
    over = remembered(evolving + "VIEW V := E OVER PER {} BY t RANGE INTERVAL '1' HOUR ADD {m := SUM(c)}; SUBSCRIBE V;")
    assert over[-1].until == "the end"
    asof = remembered(evolving + "VIEW V := R RENAME {k AS j} ASOF JOIN E ON {j = k} AT u >= t; SUBSCRIBE V;")
    assert [m.until for m in asof[-2:]] == ["the end", "the end"]


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
    found = checked(parse_program(Source("test.mmpl", text)))
    assert str(log_needs(found, Analysis(found))[0]).startswith(need)
