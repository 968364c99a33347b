from decimal import Decimal

import numpy as np
import pytest

from smile.algebra.types import BOOL, INT, DataType
from smile.columns.knowledge import Objects, known
from smile.columns.masks import T
from smile.columns.values import Values
from smile.kernels import points
from smile.kernels.changes import Version
from smile.kernels.layout import Evolving, Layout
from smile.kernels.stored import columns_of, fixed_of, flat, version_of
from smile.knowledge.known import Known
from smile.knowledge.latest import Latest
from smile.knowledge.mask import Mask
from smile.knowledge.masked import Masked
from smile.knowledge.nested import Nested, Row
from smile.knowledge.once import Once
from smile.knowledge.range import Range
from smile.state.run import Shape
from smile.state.table import Table

INNER = Nested({((False, 1),): Masked.exactly(Row({"a": Range.exactly(2)}))}, sealed=True)
POINTS: list[Known] = [
    Range(),
    Range.exactly(None),
    Range.bottom(1, 10**30, 5),
    Range.at_least(Decimal("1.20"), Decimal("2.50")),
    Range.between(0.1, 2.0, 1.0),
    Range.exactly("ключ"),
    Range.exactly(b"\x00\xff"),
    Range.bottom(now=INNER.now),  # type: ignore[arg-type]  # what a LEFT JOIN knows of a nested relation
    Range.bottom(now=[]),  # type: ignore[arg-type]
    Mask.of((True, None), True),
    Mask.exactly(None),
    Latest("x", (2**60, 3), False, "y"),
    Latest(),
    Once.bottom(1, 2),
    Once.silence(),
    Nested(),
    Nested(
        {
            ((False, 7), (True, False)): Masked(
                Mask.of((True, False), True), Row({"b": Range.exactly(1.0), "n": INNER})
            ),
            ((False, "z"), (False, 2)): Masked.nothing(),
        }
    ),
]


@pytest.mark.parametrize("point", POINTS, ids=repr)
def test_what_is_written_is_read_back(point: Known) -> None:
    found = points.read(points.written(point))
    assert found == point
    assert type(found) is type(point)
    assert repr(found.now) == repr(point.now)


@pytest.mark.parametrize(
    "stored",
    [b"1", b"[]", b'["eval","1"]', b'["range",["x"],null,"never",null]', b'["masked",["range",1,1,"never",1],null]'],
)
def test_nothing_else_is_read(stored: bytes) -> None:
    with pytest.raises(ValueError, match="stored as"):
        points.read(stored)


def test_points_in_a_table() -> None:
    relation = DataType("relation", columns=(("a", INT),))
    layout = Layout(("k",), {"k": INT}, {"rows": Evolving("object", relation)})
    found = np.empty(2, object)
    found[:] = [INNER, Nested()]
    key = {"k": Values(np.array([1, 2]))}
    version = Version({"rows": Objects(found)}, np.full(2, T, np.uint8), np.ones(2, np.int64))
    table = Table(Shape((".k",), columns_of(layout))).updated(flat(layout, key, version))
    there, rows = table.find([Values(np.array([2, 3, 1]))])
    assert there.tolist() == [True, False, True]
    assert fixed_of(layout, rows)["k"].data[[0, 2]].tolist() == [2, 1]
    column = version_of(layout, rows).columns["rows"]
    assert isinstance(column, Objects)
    assert column.points.tolist() == [Nested(), Range.exactly(None), INNER]


def test_what_is_known_of_a_row_in_no_table_is_null() -> None:
    layout = Layout(("k",), {"k": INT}, {"f": Evolving("mask", BOOL)})
    _, rows = Table(Shape((".k",), columns_of(layout))).find([Values(np.array([1]))])
    columns = version_of(layout, rows).columns
    assert known(columns["f"], 0, BOOL) == Mask.exactly(None)
