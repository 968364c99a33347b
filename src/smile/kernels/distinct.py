"""DISTINCT: each combination of the visible columns once, shown while one of the rows that have it is."""

from smile.kernels.groups import grouped
from smile.kernels.transform import Input, Output, Transform


def distinct(source: Input, output: Output) -> Transform:
    """Groups by all visible columns, of which nothing is asked but whether they are there."""
    return grouped(output.type.heading.key, (), source, output)
