"""Conditions of subscriptions: columns of a view that must have given values, and whether rows must be final."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from smile.algebra.json_values import JsonNumber
from smile.algebra.types import INT
from smile.columns.values import ValueColumn, from_python
from smile.decoding.values import format_hint, parse_value
from smile.errors import did_you_mean, error
from smile.kernels.transform import InputRelation

RowValues = tuple[Any, ...]


@dataclass(frozen=True)
class ViewCondition:
    """The values of the columns, also as columns of one row. Without columns, every row matches. With `only_final`, a
    row matches from the moment at which it is final. It does not change after it, so it is delivered once."""

    columns: tuple[str, ...] = ()
    values: RowValues = ()
    value_columns: Mapping[str, ValueColumn] = field(default_factory=dict, compare=False)
    only_final: bool = False

    @property
    def kind(self) -> tuple[tuple[str, ...], bool]:
        """Equal for conditions that are looked up together."""
        return self.columns, self.only_final


def parse_condition(view: InputRelation, where: Mapping[str, Any], only_final: bool = False) -> ViewCondition:
    """A condition on the values of columns, which are JSON values or text."""
    fixed, types = view.layout.fixed, view.type.heading.columns
    columns: dict[str, ValueColumn] = {}
    for name in sorted(where):
        if name not in types:
            hint = did_you_mean(name, types) or f"It has {', '.join(types)}."
            raise error("E099", f"{view.name} has no column {name[:100]}", hint=hint)
        if name not in fixed or types[name].name == "relation":
            fixed_names = ", ".join(n for n in types if n in fixed)
            hint = f"{f'These never change: {fixed_names}. Or write' if fixed_names else 'Write'} a view with it."
            raise error("E099", f"{view.name}.{name} may change, so it cannot be used in a condition", hint=hint)
        try:
            # A computed time may be beyond all ticks.
            data = INT if types[name].name == "time" and not _is_time_text(where[name]) else types[name]
            value = parse_value(_json_number(where[name]), data)
            if isinstance(value, Decimal) and value != Decimal(str(where[name])):
                raise ValueError(f"{where[name]} is not a {types[name]}")
        except ValueError as problem:
            raise error("E099", f"{view.name}.{name}: {problem}", hint=format_hint(types[name])) from None
        columns[name] = from_python([value], types[name])
    values = row_values(list(columns.values()))[0] if columns else ()
    return ViewCondition(tuple(columns), values, columns, only_final)


def _is_time_text(value: object) -> bool:
    """Whether a value for a column of ticks is a time, such as 2024-05-31 12:00:00, and not a tick."""
    return isinstance(value, str) and not value.removeprefix("-").isdigit()


def row_values(columns: Sequence[ValueColumn]) -> list[RowValues]:
    """The values of each row: decimals as integers without the point, None for NULL."""
    return list(zip(*map(_python_values, columns), strict=True))


def _python_values(column: ValueColumn) -> list[Any]:
    values: list[Any] = column.data.to_pylist() if column.is_text else column.data.tolist()
    if column.valid is None:
        return values
    return [value if is_valid else None for value, is_valid in zip(values, column.valid.tolist(), strict=True)]


def _json_number(value: Any) -> Any:
    """Numbers as `parse_value` expects them, in the notation of JSON; other values unchanged."""
    if isinstance(value, dict):
        return {name: _json_number(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_json_number(item) for item in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return JsonNumber(repr(value))
