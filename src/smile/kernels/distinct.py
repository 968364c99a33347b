"""DISTINCT: each combination of the visible columns once, shown while one of the rows that have it is."""

from smile.kernels.groups import compile_groups
from smile.kernels.transform import InputRelation, OutputRelation, Transform


def compile_distinct(source: InputRelation, output: OutputRelation) -> Transform:
    """Groups by all visible columns, of which nothing is asked but whether they are there."""
    return compile_groups(output.type.heading.key, (), source, output)
