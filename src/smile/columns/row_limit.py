"""Refuses to make more rows of one batch than memory can be expected to hold, before memory is allocated for them."""

from smile import limits
from smile.errors import error


def check_row_count(count: int, rows: str) -> None:
    """E053 if there are too many; `rows` says what they are."""
    if count > limits.transform_rows_max:
        raise error("E053", f"a batch makes {count:,} {rows}; at most {limits.transform_rows_max:,} are possible")
