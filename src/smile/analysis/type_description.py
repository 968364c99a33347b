"""The monotonic type of a relation as JSON, for `smile explain` and for brokers that import the relation."""

from typing import Any

from smile.knowledge.symbolic import Bound, Interval
from smile.knowledge.types import ColumnType, MaskDirection, RelationType


def describe_type(type_: RelationType) -> dict[str, Any]:
    return {
        "key": list(type_.heading.key),
        "hidden": sorted(type_.heading.hidden),
        "total": type_.heading.total,
        "columns": {n: _column_json(c, type_) for n, c in type_.columns.items()},
        "mask": {
            "initial": "f",
            "course": type_.mask.direction.value,
            "steps": _bound_json(type_.mask.steps),
            "final": ["F", "T"] if type_.mask.can_be_final_true else ["F"],
        },
        "steps": _bound_json(type_.steps),
        "seals": {s: None if seal.is_never else str(seal) for s, seal in type_.seals.items()},
    }


def domain_text(column: ColumnType, relation: RelationType) -> str:
    """The name of the domain, preceded by `masked` if the rows may still be shown or hidden."""
    is_masked = column.domain != "key" and relation.mask.direction is not MaskDirection.DECIDED
    return f"masked {column.domain}" if is_masked else column.domain


def _column_json(column: ColumnType, relation: RelationType) -> dict[str, Any]:
    return {
        "type": str(column.data),
        "domain": domain_text(column, relation),
        "range": _range_json(column.range),
        "steps": _bound_json(column.steps),
        "direction": column.direction.value,
        "evolves": column.evolves,
        "nullable": column.nullable,
    }


def _range_json(range_: Interval | None) -> list[Any] | None:
    return None if range_ is None else [_bound_json(range_.lo), _bound_json(range_.hi)]


def _bound_json(bound: Bound) -> int | float | str:
    number = bound.number
    return str(bound) if number is None else number if isinstance(number, int) else float(number)
