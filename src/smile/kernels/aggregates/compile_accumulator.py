"""Chooses the accumulator of an aggregate: append-only if members never leave and their values never change."""

from collections.abc import Mapping

import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.types import BOOL, DataType
from smile.columns.knowledge import ColumnKind
from smile.kernels.aggregates.accumulator import Accumulator
from smile.kernels.aggregates.averages import AppendOnlyAverage, RetractableAverage
from smile.kernels.aggregates.contributions import AggregateArgument
from smile.kernels.aggregates.count_distinct import AppendOnlyCountDistinct, RetractableCountDistinct
from smile.kernels.aggregates.counts import AppendOnlyCount, RetractableCount
from smile.kernels.aggregates.earliest import AppendOnlyEarliest, RetractableEarliest
from smile.kernels.aggregates.joined_values import JoiningAccumulator
from smile.kernels.aggregates.latest import AppendOnlyLatest, RetractableLatest
from smile.kernels.aggregates.min_max import AppendOnlyMinMax, RetractableMinMax
from smile.kernels.aggregates.nested_group import NestedGroupAccumulator
from smile.kernels.aggregates.percentiles import AppendOnlyPercentile, RetractablePercentile
from smile.kernels.aggregates.sums import AppendOnlySum, RetractableSum
from smile.kernels.layout import EvolvingColumnLayout
from smile.kernels.transform import InputRelation
from smile.knowledge.types import ColumnType


def compile_accumulator(
    number: int, aggregate: mmpl.Aggregate, per: Mapping[str, pa.DataType], source: InputRelation, result: ColumnType
) -> Accumulator:
    """`number` is the position of the aggregate in its operator; `per` are the grouping columns. `result` is the type
    of the aggregate."""
    prefix = f"{number}:"
    if aggregate.function == "group":
        return NestedGroupAccumulator(aggregate.columns, source.layout)
    argument = None if aggregate.arg is None else AggregateArgument(aggregate.arg, source)
    append_only = source.layout.certain and (argument is None or argument.is_fixed)
    if aggregate.function == "count":
        return AppendOnlyCount(prefix, argument) if append_only else RetractableCount(prefix, argument)
    assert argument is not None
    match aggregate.function:
        case "sum":
            # Only an overflow makes a sum NULL.
            return (AppendOnlySum if append_only else RetractableSum)(prefix, argument, can_overflow=result.nullable)
        case "avg":
            return AppendOnlyAverage(prefix, argument) if append_only else RetractableAverage(prefix, argument)
        case "max" | "min":
            is_max = aggregate.function == "max"
            return (AppendOnlyMinMax if append_only else RetractableMinMax)(prefix, argument, is_max)
        case "count_distinct":
            return (AppendOnlyCountDistinct if append_only else RetractableCountDistinct)(prefix, argument, per)
        case "percentile_cont" | "percentile_disc":
            return (AppendOnlyPercentile if append_only else RetractablePercentile)(prefix, argument, aggregate, per)
        case "string_agg" | "array_concat_agg":
            return JoiningAccumulator(aggregate, argument, source.layout)
        case "earliest":
            tick = source.type.heading.tick
            return (AppendOnlyEarliest if append_only else RetractableEarliest)(prefix, argument, tick)
        case _:
            return (AppendOnlyLatest if append_only else RetractableLatest)(prefix, argument, source.type.heading.tick)


def aggregate_column(aggregate: mmpl.Aggregate, data: DataType) -> EvolvingColumnLayout:
    """The layout of the aggregate's column in the output."""
    kinds: dict[str, ColumnKind] = {"group": "object", "latest": "latest"}
    return EvolvingColumnLayout(kinds.get(aggregate.function, "mask" if data == BOOL else "range"), data)
