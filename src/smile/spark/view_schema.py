"""The columns of a view in Spark: its own, and those that begin with an underscore, which say what is known of a row.

| column | type | |
|---|---|---|
| `_change` | string | `row`; of changes also `deleted` or `reset` |
| `_final` | boolean | the row will not change any more |
| `_knowledge` | struct | for each column that evolves: `at_least`, `at_most`, `final`, and more by its domain |
| `_horizons` | map | for each stream the tick up to which the rows include all events |

The same list of `ViewField`s gives the schema and the Arrow columns, so they agree.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from smile.client.changes import Change
from smile.client.knowledge import Knowledge
from smile.client.values import ViewColumn
from smile.errors import error

CHANGE, FINAL, KNOWLEDGE, HORIZONS = "_change", "_final", "_knowledge", "_horizons"
ROW, DELETED, RESET = "row", "deleted", "reset"

_SIMPLE: Mapping[str, DataType] = {
    "bool": BooleanType(),
    "float": DoubleType(),
    "string": StringType(),
    "json": StringType(),
    "bytes": BinaryType(),
    "timestamp": TimestampNTZType(),
    "date": DateType(),
}
_HORIZONS_ARROW = pa.map_(pa.string(), pa.int64())

Json = dict[str, Any]
KnowledgePart = tuple[str, DataType, Any, Callable[[Knowledge], Any]]
"""A field of the knowledge of a column: its name, its types in Spark and in Arrow, and its value."""


@dataclass(frozen=True)
class ChangeRow:
    """A row of the data source. `change` is None for `reset`."""

    kind: str
    change: Change | None


@dataclass(frozen=True)
class ViewField:
    """A column of the data source: its types, and its value for a row."""

    name: str
    spark_type: DataType
    arrow_type: Any  # pyarrow has no type hints
    value: Callable[[ChangeRow], Any]


@dataclass(frozen=True)
class ViewSchema:
    """The columns of a view as the data source has them. `fields` has all but the horizons."""

    fields: Sequence[ViewField]

    @staticmethod
    def from_description(description: Json, knowledge: bool, times: bool) -> "ViewSchema":
        """`description` is what the broker answers about the view."""
        columns = [(ViewColumn.from_type(c["name"], c["type"]), c) for c in description["columns"]]
        fields = [_value_field(column, times) for column, _ in columns]
        fields.append(ViewField(CHANGE, StringType(), pa.string(), lambda row: row.kind))
        fields.append(ViewField(FINAL, BooleanType(), pa.bool_(), _is_final))
        evolving = [(column, c["domain"]) for column, c in columns if c["evolves"]]
        fields += [_knowledge_field(evolving, times)] if knowledge and evolving else []
        for name in (CHANGE, FINAL, KNOWLEDGE, HORIZONS):
            if any(column.name.casefold() == name for column, _ in columns):
                hint = f"Give it another name in a view over {description['name']}: SELECT {name} AS …"
                raise error("E171", f"{description['name']} has a column {name}, which the data source adds", hint=hint)
        return ViewSchema(tuple(fields))

    def spark_schema(self) -> StructType:
        fields = [StructField(field.name, field.spark_type) for field in self.fields]
        return StructType([*fields, StructField(HORIZONS, MapType(StringType(), LongType()))])

    def to_arrow(self, rows: Sequence[ChangeRow], horizons: Mapping[str, int]) -> "pa.RecordBatch":
        arrays = [pa.array([field.value(row) for row in rows], field.arrow_type) for field in self.fields]
        marks = pa.array([list(horizons.items())] * len(rows), _HORIZONS_ARROW)
        return pa.RecordBatch.from_arrays([*arrays, marks], [*(field.name for field in self.fields), HORIZONS])


def spark_type(column: ViewColumn, times: bool) -> DataType:
    match column.kind:
        case "time" if times:
            return TimestampType()
        case "decimal":
            return DecimalType(column.digits, column.scale)
        case "array":
            return ArrayType(spark_type(column.element, times))
        case "relation":
            inner = [StructField(c.name, spark_type(c, times)) for c in column.columns]
            return ArrayType(StructType(inner))
    return _SIMPLE.get(column.kind, LongType())


def _value_field(column: ViewColumn, times: bool) -> ViewField:
    def value(row: ChangeRow) -> Any:
        if row.change is None:
            return None
        name = column.name
        known = row.change.row.get(name) if name in row.change.row else row.change.key.get(name)
        return column.to_times(known) if times else known

    return ViewField(column.name, spark_type(column, times), column.arrow_type(times), value)


def _is_final(row: ChangeRow) -> bool | None:
    return None if row.change is None else row.change.final


def _knowledge_field(evolving: Sequence[tuple[ViewColumn, str]], times: bool) -> ViewField:
    parts_by_column = {column.name: _knowledge_parts(column, domain, times) for column, domain in evolving}

    def value(row: ChangeRow) -> Any:
        change = row.change
        if change is None or change.deleted:
            return None
        return {
            column: {name: read(change[column]) for name, _, _, read in parts}
            for column, parts in parts_by_column.items()
        }

    spark_fields = [
        StructField(column, StructType([StructField(name, type_) for name, type_, _, _ in parts]))
        for column, parts in parts_by_column.items()
    ]
    arrow_fields = [
        (column, pa.struct([(name, type_) for name, _, type_, _ in parts])) for column, parts in parts_by_column.items()
    ]
    return ViewField(KNOWLEDGE, StructType(spark_fields), pa.struct(arrow_fields), value)


def _knowledge_parts(column: ViewColumn, domain: str, times: bool) -> list[KnowledgePart]:
    final: KnowledgePart = ("final", BooleanType(), pa.bool_(), lambda known: known.is_final)
    if column.kind == "relation":
        states: KnowledgePart = (
            "rows", ArrayType(StringType()), pa.list_(pa.string()), lambda known: list(known.row_states)
        )  # fmt: skip
        return [states, ("open", BooleanType(), pa.bool_(), lambda known: known.is_open), final]
    in_spark, in_arrow = spark_type(column, times), column.arrow_type(times)

    def to_times(value: Any) -> Any:
        return column.to_times(value) if times else value

    parts: list[KnowledgePart] = [
        ("at_least", in_spark, in_arrow, lambda known: to_times(known.low)),
        ("at_most", in_spark, in_arrow, lambda known: to_times(known.high)),
    ]
    if domain.endswith("latest"):
        parts += [
            ("latest", in_spark, in_arrow, lambda known: to_times(known.latest)),
            ("at", LongType(), pa.int64(), lambda known: known.at),
            ("source", LongType(), pa.int64(), lambda known: known.source),
        ]
    return [*parts, final]
