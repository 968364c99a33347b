"""The knowledge graph: one transform for each operator, equal expressions once, and names that a user recognises."""

from smile.graph.knowledge_graph import KnowledgeGraph
from smile.program import compile_program
from smile.source import Source

STREAMS = "STREAM S (t: time -> a: int, k: string); STREAM R (u: time -> b: int, k: string);"


def graph(views: str) -> KnowledgeGraph:
    return compile_program(Source("test.mmpl", STREAMS + views)).graph


def test_transforms_are_named_after_their_view_in_the_order_of_data() -> None:
    built = graph("VIEW V := S WHERE a > 1 SUMMARIZE PER {k} ADD {n := COUNT()} WHERE n > 2; SUBSCRIBE V;")
    assert [(t.output, t.inputs, t.operator) for t in built.transforms] == [
        ("V.1", ("S",), "WHERE a > 1"),
        ("V.2", ("V.1",), "SUMMARIZE PER {k} ADD {n := COUNT()}"),
        ("V", ("V.2",), "WHERE n > 2"),
    ]


def test_equal_parts_of_all_views_are_one_transform() -> None:
    built = graph(
        "VIEW V := S WHERE a > 1 SUMMARIZE PER {k} ADD {n := COUNT()};"
        "VIEW W := S WHERE a > 1 DISTINCT; VIEW X := S WHERE a > 1; SUBSCRIBE V, W;"
    )
    assert [t.operator for t in built.transforms].count("WHERE a > 1") == 1
    assert built.transform_by_output["V"].inputs == built.transform_by_output["W"].inputs


def test_why_a_relation_is_stored() -> None:
    built = graph(
        "VIEW T := R SUMMARIZE PER {k} ADD {n := COUNT()}; VIEW V := S JOIN T ON {k} WHERE n > 2; SUBSCRIBE V;"
    )
    assert built.relations["R"].storage_reason == "the log"
    assert built.relations["S"].storage_reason == "the log, and V.1 looks up its rows"
    assert built.relations["T"].storage_reason == "it holds the state of its groups"
    assert built.relations["V.1"].storage_reason is None
    assert built.relations["V"].storage_reason == "subscribers read it"


def test_the_path_of_a_view_leaves_out_what_it_does_not_read() -> None:
    built = graph("VIEW V := S WHERE a > 1; VIEW W := R WHERE b > 1; VIEW X := V DISTINCT; SUBSCRIBE X;")
    assert built.upstream_relations("X") == ["S", "V", "X"]


def test_a_view_that_is_a_stream() -> None:
    built = graph("VIEW V := S; SUBSCRIBE V;")
    assert [(t.output, t.inputs) for t in built.transforms] == [("V", ("S",))]


def test_a_view_may_be_called_like_a_part_of_another() -> None:
    built = graph('VIEW V := S WHERE a > 1 DISTINCT; VIEW "V.1" := R WHERE b > 1; SUBSCRIBE V, "V.1";')
    assert [(t.output, t.inputs, built.relations[t.output].view) for t in built.transforms] == [
        ("V.2", ("S",), "V"),
        ("V", ("V.2",), "V"),
        ("V.1", ("R",), "V.1"),
    ]
