"""Functional dependencies: what follows from them, and what is left of them after a projection."""

from smile.knowledge.functional_dependencies import FunctionalDependencies

PAIRS = FunctionalDependencies().add(["t"], ["t", "item", "expires"]).add(["expires"], ["day"]).add(["u", "t"], ["n"])


def test_what_columns_determine() -> None:
    assert PAIRS.determined_by(["t"], set()) == {"t", "item", "expires", "day"}
    assert PAIRS.determined_by(["expires"], set()) == {"expires", "day"}
    assert PAIRS.determined_by(["u"], set()) == {"u"}
    assert "n" in PAIRS.determined_by(["u", "t"], set())


def test_a_projection_keeps_what_follows_through_other_columns() -> None:
    projected = PAIRS.project(["t", "day", "u"], set())
    assert projected.determined_by(["t"], set()) == {"t", "day"}
    assert projected.determined_by(["u"], set()) == {"u"}


def test_unique_columns_determine_nothing_where_they_are_null() -> None:
    unique = PAIRS.add(["id"], ["t", "id"], needs_values=True)
    assert unique.determined_by(["id"], {"id"}) == {"id"}
    assert unique.determined_by(["id"], set()) == {"id", "t", "item", "expires", "day"}
    assert unique.project(["id", "day"], {"id"}).determined_by(["id"], {"id"}) == {"id"}
    assert unique.project(["id", "day"], {"id"}).determined_by(["id"], set()) == {"id", "day"}


def test_names() -> None:
    assert PAIRS.rename({"t": "o"}).determined_by(["o"], set()) == {"o", "item", "expires", "day"}
    assert FunctionalDependencies().merge(PAIRS).dependencies == PAIRS.dependencies
