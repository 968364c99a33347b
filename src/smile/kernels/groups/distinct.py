"""DISTINCT: one row for each combination of the visible columns, shown while any source row with it is shown."""

from smile.kernels.groups.grouping import compile_groups
from smile.kernels.transform import InputRelation, OutputRelation, Transform


def compile_distinct(source: InputRelation, output: OutputRelation) -> Transform:
    """Groups by all visible columns, without aggregates."""
    return compile_groups(output.type.heading.key, (), source, output)
