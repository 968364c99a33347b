"""Which accumulator an aggregate has: the plain one where members are there for good with values that never change."""

from collections.abc import Mapping

import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.types import BOOL
from smile.columns.knowledge import Kind
from smile.kernels.aggregates.accumulator import Accumulator
from smile.kernels.aggregates.averages import Average, PlainAverage
from smile.kernels.aggregates.counts import Count, PlainCount
from smile.kernels.aggregates.distincts import CountDistinct, PlainCountDistinct
from smile.kernels.aggregates.extremes import Extreme, PlainExtreme
from smile.kernels.aggregates.latests import Latest, PlainLatest
from smile.kernels.aggregates.nested import Collected
from smile.kernels.aggregates.parts import Argument
from smile.kernels.aggregates.sums import PlainSum, Sum
from smile.kernels.layout import Evolving
from smile.kernels.transform import Input, Output
from smile.knowledge.cells import range_of


def accumulator(
    number: int, name: str, wanted: mmpl.Aggregate, per: Mapping[str, pa.DataType], source: Input, output: Output
) -> Accumulator:
    """`number` is the aggregate's among those of its operator, `per` what is grouped by."""
    prefix = f"{number}:"
    if wanted.function == "group":
        return Collected(wanted.columns, source.layout)
    argument = None if wanted.arg is None else Argument(wanted.arg, source)
    plain = source.layout.certain and (argument is None or argument.exact)
    if wanted.function == "count":
        return PlainCount(prefix, argument) if plain else Count(prefix, argument)
    assert argument is not None
    match wanted.function:
        case "sum":
            return PlainSum(prefix, argument) if plain else Sum(prefix, argument)
        case "avg":
            return PlainAverage(prefix, argument) if plain else Average(prefix, argument)
        case "max" | "min":
            greatest = wanted.function == "max"
            return PlainExtreme(prefix, argument, greatest) if plain else Extreme(prefix, argument, greatest)
        case "count_distinct":
            return PlainCountDistinct(prefix, argument, per) if plain else CountDistinct(prefix, argument, per)
        case _:
            tick, bottom = source.type.heading.tick, range_of(output.bottoms[name])
            as_latest = output.type.columns[name].domain == "latest"
            kind = PlainLatest if plain else Latest
            return kind(prefix, argument, tick, bottom, as_latest)


def evolving(name: str, wanted: mmpl.Aggregate, output: Output) -> Evolving:
    """How the aggregate's column stands in the output."""
    data = output.type.heading.columns[name]
    kind: Kind = "mask" if data == BOOL else "range"
    if wanted.function == "group":
        kind = "object"
    elif wanted.function == "latest" and output.type.columns[name].domain == "latest":
        kind = "latest"
    return Evolving(kind, data)
