"""The papers' figures, edge by edge."""

from smile.knowledge.values.figures import count_figure, hasse_edges, mask_figure, max_figure, once_figure
from smile.knowledge.values.range import Range


def test_base_column() -> None:
    assert once_figure(0, 3).edges == {("?", final) for final in ("S", "0", "1", "2", "3")}


def test_max() -> None:
    assert max_figure(0, 3).edges == {
        ("?", "S"),
        ("?", "≥0"),
        ("≥0", "=0"),
        ("≥0", "≥1"),
        ("≥1", "=1"),
        ("≥1", "≥2"),
        ("≥2", "=2"),
        ("≥2", "=3"),
    }


def test_count_of_three_rows() -> None:
    figure = count_figure(3)
    assert len(figure.labels) == 10
    steps = {((a, b), (a + 1, b)) for a in range(3) for b in range(a + 1, 4)}
    steps |= {((a, b), (a, b - 1)) for a in range(3) for b in range(a + 1, 4)}
    assert figure.edges == {(f"[{a}..{b}]", f"[{c}..{d}]") for (a, b), (c, d) in steps}


def test_mask_of_the_trade_floor() -> None:
    assert mask_figure(False, 2, frozenset((True, False))).edges == {("f", "t"), ("f", "F"), ("t", "T"), ("t", "F")}
    assert mask_figure(False, 2, frozenset((False,))).edges == {("f", "t"), ("f", "F"), ("t", "F")}
    assert mask_figure(True, 1, frozenset((True, False))).edges == {("t", "T"), ("t", "F")}
    assert ("f2", "T") in mask_figure(False, 3, frozenset((True, False))).edges


def test_no_edge_is_implied_by_others() -> None:
    points = [Range.at_least(1), Range.at_least(2), Range.exactly(2), Range.at_least(1)]
    shown = [(p.show(), q.show()) for p, q in hasse_edges(points[:3])]
    assert shown == [("≥1", "≥2"), ("≥2", "=2")]
