"""Value seals: for a value of a time expression and a stream, the last tick of the stream at which a row can appear
whose value is lower.

Events that are still unknown are later than the horizon, so rows that appear later have later times. Therefore the
least time of a group is final long before the group is.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from smile.algebra import mmpl, trees
from smile.algebra.functions.catalogue import type_of
from smile.algebra.time_forms import time_constraints, truncated_time
from smile.algebra.types import TIME, DataType
from smile.knowledge.seals import Seal
from smile.knowledge.types import RelationType

VALUE = "\0"
"""Stands for the value of the expression in the place of a column."""


def value_seals(expr: mmpl.Expr, source: RelationType) -> Mapping[str, Seal]:
    """The value seals of an expression over rows of `source`, by stream. If its value evolves, or nothing relates it to
    the ticks of a stream, the seal is never."""
    columns = trees.columns_in(expr)
    if any(source.columns[c].evolves for c in columns):
        return dict.fromkeys(source.seals, Seal.NEVER)
    types = source.heading.columns
    # The beginning of a period is below that of another period if and only if the time itself is.
    equation = mmpl.Call("=", (mmpl.ColumnRef(VALUE), truncated_time(expr, types)))
    # A row in which the expression is NULL has no value.
    constraints = source.constraints.where_not_null(columns).with_constraints(
        time_constraints(equation, {**types, VALUE: type_of(expr, types)})
    )
    return {s: constraints.express_seal_in_order(seal, VALUE).delay(-1) for s, seal in source.seals.items()}


@dataclass(frozen=True)
class PassedValue:
    """The value that decides an aggregate once the horizons have passed it, its type, and its seals by stream."""

    type: DataType
    seals: Mapping[str, Seal]


def passed_value(call: mmpl.Aggregate, source: RelationType) -> PassedValue | None:
    """None if no value decides the aggregate before its group is sealed."""
    types = source.heading.columns
    if call.function == "min" and call.arg is not None:
        return _if_passed(PassedValue(type_of(call.arg, types), value_seals(call.arg, source)))
    if call.function == "earliest":
        # A row of another source can have the same tick and come first.
        seals = value_seals(mmpl.ColumnRef(source.heading.tick[0]), source)
        return _if_passed(PassedValue(TIME, {s: seal.delay(1) for s, seal in seals.items()}))
    return None


def _if_passed(value: PassedValue) -> PassedValue | None:
    return value if any(not seal.is_never for seal in value.seals.values()) else None
