"""Points of knowledge are decoded as they were encoded, and are stored in tables."""

from decimal import Decimal

import numpy as np
import pytest

from smile.algebra.types import BOOL, INT, DataType
from smile.columns.knowledge import ObjectColumn, knowledge_at
from smile.columns.masks import T
from smile.columns.values import ValueColumn
from smile.kernels import point_codec
from smile.kernels.delta import RowKnowledge
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.kernels.row_encoding import decode_fixed, decode_knowledge, encode_rows, table_columns
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.latest import LatestValue
from smile.knowledge.values.mask import Mask
from smile.knowledge.values.masked import MaskedValue
from smile.knowledge.values.nested import NestedRelation, NestedRow
from smile.knowledge.values.once import OnceValue
from smile.knowledge.values.range import Range
from smile.state.run import TableSchema
from smile.state.table import StateTable

INNER = NestedRelation({((False, 1),): MaskedValue.exactly(NestedRow({"a": Range.exactly(2)}))}, sealed=True)
POINTS: list[CellKnowledge] = [
    Range(),
    Range.exactly(None),
    Range.bottom(1, 10**30, 5),
    Range.at_least(Decimal("1.20"), Decimal("2.50")),
    Range.between(0.1, 2.0, 1.0),
    Range.exactly("ключ"),
    Range.exactly(b"\x00\xff"),
    Range.bottom(now=INNER.now),  # type: ignore[arg-type]  # what a LEFT JOIN knows of a nested relation
    Range.bottom(now=[]),  # type: ignore[arg-type]
    Mask.from_truths((True, None), True),
    Mask.exactly(None),
    LatestValue("x", (2**60, 3), Range.bottom("a", None, "y")),
    LatestValue(),
    OnceValue.bottom(1, 2),
    OnceValue.silence(),
    NestedRelation(),
    NestedRelation(
        {
            ((False, 7), (True, False)): MaskedValue(
                Mask.from_truths((True, False), True), NestedRow({"b": Range.exactly(1.0), "n": INNER})
            ),
            ((False, "z"), (False, 2)): MaskedValue.permanently_hidden(),
        }
    ),
]


@pytest.mark.parametrize("point", POINTS, ids=repr)
def test_what_is_written_is_read_back(point: CellKnowledge) -> None:
    decoded = point_codec.decode_point(point_codec.encode_point(point))
    assert decoded == point
    assert type(decoded) is type(point)
    assert repr(decoded.now) == repr(point.now)


@pytest.mark.parametrize(
    "encoded",
    [b"1", b"[]", b'["eval","1"]', b'["range",["x"],null,"never",null]', b'["masked",["range",1,1,"never",1],null]'],
)
def test_nothing_else_is_read(encoded: bytes) -> None:
    with pytest.raises(ValueError, match="not an encoded"):
        point_codec.decode_point(encoded)


def test_points_in_a_table() -> None:
    relation = DataType("relation", columns=(("a", INT),))
    layout = Layout(("k",), {"k": INT}, {"rows": EvolvingColumnLayout("object", relation)})
    points = np.empty(2, object)
    points[:] = [INNER, NestedRelation()]
    key = {"k": ValueColumn(np.array([1, 2]))}
    knowledge = RowKnowledge({"rows": ObjectColumn(points)}, np.full(2, T, np.uint8), np.ones(2, np.int64))
    table = StateTable(TableSchema((".k",), table_columns(layout))).with_rows(encode_rows(layout, key, knowledge))
    is_present, rows = table.find([ValueColumn(np.array([2, 3, 1]))])
    assert is_present.tolist() == [True, False, True]
    assert decode_fixed(layout, rows)["k"].data[[0, 2]].tolist() == [2, 1]
    column = decode_knowledge(layout, rows).columns["rows"]
    assert isinstance(column, ObjectColumn)
    assert column.points.tolist() == [NestedRelation(), Range.exactly(None), INNER]


def test_the_knowledge_of_a_row_that_is_not_stored_is_null() -> None:
    layout = Layout(("k",), {"k": INT}, {"f": EvolvingColumnLayout("mask", BOOL)})
    _, rows = StateTable(TableSchema((".k",), table_columns(layout))).find([ValueColumn(np.array([1]))])
    columns = decode_knowledge(layout, rows).columns
    assert knowledge_at(columns["f"], 0, BOOL) == Mask.exactly(None)
