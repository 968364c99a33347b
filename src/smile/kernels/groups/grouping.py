"""Chooses the transform for groups, by whether the group columns evolve and how many members a group can have."""

from collections.abc import Sequence

from smile.algebra import mmpl
from smile.kernels.groups.evolving_groups import EvolvingGroups
from smile.kernels.groups.single_member_groups import SingleMemberGroups
from smile.kernels.groups.summarize import AggregateGrouping, MultiMemberGroups
from smile.kernels.transform import InputRelation, OutputRelation, Transform
from smile.knowledge.aggregate_types import membership


def compile_summarize(rel: mmpl.Summarize, source: InputRelation, output: OutputRelation) -> Transform:
    return compile_groups(rel.per, rel.aggregates, source, output)


def compile_groups(
    per: tuple[str, ...],
    aggregates: Sequence[tuple[str, mmpl.Aggregate]],
    source: InputRelation,
    output: OutputRelation,
) -> Transform:
    is_evolving = any(c in source.layout.evolving for c in per)
    grouping = AggregateGrouping(per, aggregates, source, output, is_evolving)
    is_single_member = membership(source.type, per).is_single
    if is_evolving:
        return EvolvingGroups(grouping, is_single_member)
    return SingleMemberGroups(grouping) if is_single_member else MultiMemberGroups(grouping)
