"""Which transform keeps groups: what they are grouped by, and how many members a group can have, decide it."""

from collections.abc import Sequence

from smile.algebra import mmpl
from smile.kernels.moving import Moving
from smile.kernels.single import Single
from smile.kernels.summarize import Grouped, Grouping
from smile.kernels.transform import Input, Output, Transform
from smile.knowledge.aggregate_types import membership


def summarize(rel: mmpl.Summarize, source: Input, output: Output) -> Transform:
    return grouped(rel.per, rel.aggregates, source, output)


def grouped(
    per: tuple[str, ...], aggregates: Sequence[tuple[str, mmpl.Aggregate]], source: Input, output: Output
) -> Transform:
    moving = any(c in source.layout.evolving for c in per)
    grouping = Grouping(per, aggregates, source, output, moving)
    single = membership(source.type, per).single
    if moving:
        return Moving(grouping, single)
    return Single(grouping) if single else Grouped(grouping)
