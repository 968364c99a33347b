"""Stages: rows are exchanged where they must be processed together, and only there."""

import pytest

from smile.algebra import mmpl
from smile.algebra.parser import parse_program
from smile.analysis.check import check_program
from smile.analysis.type_analysis import TypeAnalysis
from smile.graph.build import build_graph
from smile.graph.knowledge_graph import KnowledgeGraph
from smile.graph.stages import Stage, split_into_stages
from smile.kernels.compile import compile_graph
from smile.source import Source

STREAMS = """
STREAM S (t: time -> a: int, k: string, j: string);
STREAM R (u: time -> b: int, k: string, ref: time);
"""


def program(text: str) -> mmpl.Program:
    return check_program(parse_program(Source("test.mmpl", STREAMS + text)))


def stages(text: str) -> list[Stage]:
    knowledge_graph = graph(text)
    inputs = compile_graph(knowledge_graph, program(text).streams).inputs
    return split_into_stages(knowledge_graph, {name: source.layout.fixed for name, source in inputs.items()})


def graph(text: str) -> KnowledgeGraph:
    parsed = program(text)
    return build_graph(parsed, TypeAnalysis(parsed))


@pytest.mark.parametrize(
    ("views", "keys"),
    [
        ("VIEW V := S WHERE a > 1;", [["any"]]),
        ("VIEW V := S SUMMARIZE PER {k} ADD {n := COUNT()};", [["k"]]),
        ("VIEW V := S SUMMARIZE PER {} ADD {n := COUNT()};", [["one partition"]]),
        # the same stream, routed by two columns as it is read
        ("VIEW V := S SUMMARIZE PER {k} ADD {n := COUNT()}; VIEW W := S SUMMARIZE PER {j} ADD {n := COUNT()};", [["k", "j"]]),
        # partitioned by k from the start, because a reader needs it
        ("VIEW V := S SUMMARIZE PER {j, k} ADD {n := COUNT()} SUMMARIZE PER {k} ADD {m := MAX(n)};", [["k"]]),
        ("VIEW V := S SUMMARIZE PER {j, k} ADD {n := COUNT()} RENAME {k AS x} WHERE n > 1 SUMMARIZE PER {x} ADD {m := MAX(n)};", [["k", "x"]]),
        # an aggregate is the next key: no row may move, so all are in one partition
        ("VIEW V := S SUMMARIZE PER {k} ADD {n := COUNT()} SUMMARIZE PER {n} ADD {m := COUNT()};", [["k"], ["one partition"]]),
        ("VIEW V := S SUMMARIZE PER {k} ADD {n := COUNT()} SUMMARIZE PER {} ADD {m := SUM(n)};", [["k"], ["one partition"]]),
        ("VIEW V := S JOIN R ON {k};", [["k"]]),
        ("VIEW V := S JOIN (R SUMMARIZE PER {k} ADD {n := COUNT()}) ON {k};", [["k"]]),
        ("VIEW V := S SUMMARIZE PER {j} ADD {n := COUNT()} JOIN (R RENAME {k AS j}) ON {j};", [["j"]]),
        # one side is in the right partition, the other is not
        ("VIEW V := S SUMMARIZE PER {k, j} ADD {n := COUNT()} SUMMARIZE PER {n} ADD {m := COUNT()} JOIN (R RENAME {b AS n}) ON {n};", [["k, j"], ["one partition"]]),
        # NOT IN: a NULL anywhere on the right affects every left row
        ("VIEW V := S ANTIJOIN (R PROJECT {u, k}) ON {k} NULL AWARE;", [["one partition"]]),
        ("VIEW V := S ASOF JOIN (R RENAME {k AS i}) ON {k = i} AT t >= u;", [["k"]]),
        ("VIEW V := S BEST 3 BY a PER {};", [["one partition"]]),
        ("VIEW V := S SILENCE {q := t PER {k} > INTERVAL '1' HOUR};", [["k"]]),
        ("VIEW V := UNION {S PROJECT {k}, R PROJECT {k}} DISTINCT;", [["k"]]),
        # branches in different partitions
        ("VIEW V := UNION {S SUMMARIZE PER {k} ADD {n := COUNT()} PROJECT {n}, S SUMMARIZE PER {j} ADD {n := COUNT()} PROJECT {n}} SUMMARIZE PER {n} ADD {m := COUNT()};", [["k", "j", "any"], ["one partition"]]),
        # branches in the same partitions, by another name
        ("VIEW V := UNION {S SUMMARIZE PER {k} ADD {n := COUNT()}, S SUMMARIZE PER {j} ADD {n := COUNT()} RENAME {j AS k}} SUMMARIZE PER {k} ADD {m := SUM(n)};", [["k", "j"]]),
        # the partitioning column is projected away: the next reader that needs it must exchange
        ("VIEW V := S JOIN R ON {k} PROJECT {a, b} SUMMARIZE PER {a} ADD {n := COUNT()};", [["k", "any"], ["a"]]),
    ],
)  # fmt: skip
def test_partitioning(views: str, keys: list[list[str]]) -> None:
    assert [stage.partition_keys for stage in stages(views)] == keys


def test_trade_floor_has_two_stages() -> None:
    text = """
        STREAM BuyBids (buyid: time -> issue: string, price: int, #bid: int);
        STREAM SellBids (sellid: time -> issue: string, price: int, #bid: int);
        STREAM Matches (t: time -> buyid: time, sellid: time, #traded: int);
        VIEW BuySatisfied := Matches SUMMARIZE PER {buyid} ADD {total := SUM(#traded)};
        VIEW SellSatisfied := Matches SUMMARIZE PER {sellid} ADD {total := SUM(#traded)};
        VIEW RemainingBuy := BuyBids JOIN BuySatisfied ON {buyid} PROJECT {buyid, issue, price, total};
        VIEW RemainingSell := SellBids JOIN SellSatisfied ON {sellid} RENAME {total AS sold} PROJECT {sellid, issue, price, sold};
        VIEW Matchable := RemainingBuy JOIN RemainingSell ON {issue, price};
        SUBSCRIBE Matchable;
    """
    first, second = stages(text)
    assert first.partition_keys == ["buyid", "sellid"]
    assert not first.exchanges
    assert second.partition_keys == ["issue, price"]
    assert [(e.relation, e.columns) for e in second.exchanges] == [
        ("RemainingBuy", ("issue", "price")),
        ("RemainingSell", ("issue", "price")),
    ]


def test_a_stream_that_meets_a_later_stage_is_sent_there() -> None:
    split = stages(
        "VIEW V := S SUMMARIZE PER {k} ADD {n := COUNT()} SUMMARIZE PER {n} ADD {m := COUNT()} "
        "JOIN (R RENAME {b AS n}) ON {n};"
    )
    assert [(e.relation, e.columns) for e in split[1].exchanges] == [("V.1", ()), ("V.3", ())]


def test_every_transform_is_in_one_stage_after_what_it_reads() -> None:
    text = "VIEW V := S JOIN R ON {k} SUMMARIZE PER {a} ADD {n := COUNT()}; VIEW W := V SUMMARIZE PER {n} ADD {m := COUNT()};"
    stage_numbers = {t.output: stage.number for stage in stages(text) for t in stage.transforms}
    for transform in graph(text).transforms:
        assert all(stage_numbers.get(name, 1) <= stage_numbers[transform.output] for name in transform.inputs)


def test_a_branch_from_an_earlier_stage_is_sent_to_the_later_one() -> None:
    first, second = stages(
        "VIEW V := UNION {S SUMMARIZE PER {k} ADD {n := COUNT()} SUMMARIZE PER {n} ADD {m := COUNT()} PROJECT {m}, "
        "S SUMMARIZE PER {j} ADD {m := COUNT()} PROJECT {m}};"
    )
    sent = {(e.relation, e.columns, e.reader) for e in second.exchanges}
    produced = {t.output: t.operator for t in first.transforms}
    assert ("V", None) in {(reader, by) for _, by, reader in sent}
    assert all(relation in produced for relation, _, _ in sent)


def test_a_relation_that_meets_itself_is_sent_by_the_columns_of_each_side() -> None:
    grouped = "VIEW G := S SUMMARIZE PER {k, j} ADD {n := COUNT()};"
    _, second = stages(grouped + "VIEW V := G SEMIJOIN G ON {k = j};")
    assert [(e.relation, e.columns) for e in second.exchanges] == [("G", ("k",)), ("G", ("j",))]


def test_the_state_of_each_row_is_in_one_partition() -> None:
    (only,) = stages("VIEW V := S LAST t SIZE INTERVAL '1' HOUR;")
    assert only.reads["V"][0].mode == "share"
