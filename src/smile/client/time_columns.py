"""The ticks of a column of times: of a pandas or Polars series, an Arrow or NumPy array, or a list."""

from typing import Any

from smile.errors import error
from smile.extras import libraries_of


def column_ticks(times: Any, ticks_per_microsecond: int) -> Any:
    """A column of the same kind, with NULL where there is no time. E079 if these are no times."""
    with libraries_of("frames"):
        import pyarrow as pa  # noqa: PLC0415  # slow to import, and only needed for columns
        import pyarrow.compute as pc  # noqa: PLC0415

    kind = type(times).__module__.partition(".")[0]
    try:
        array = times.to_arrow() if kind == "polars" else times if kind == "pyarrow" else pa.array(times)
        if not pa.types.is_timestamp(array.type):
            raise TypeError(f"a column of {array.type}")
        micros = pc.floor_temporal(array, unit="microsecond").cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())
        ticks = pc.multiply_checked(micros, ticks_per_microsecond)
    except (TypeError, ValueError) as problem:  # those of pyarrow are among them
        hint = "Give a datetime, or a column of timestamps, such as pd.to_datetime(column)."
        raise error("E079", f"there are no ticks of {problem}", hint=hint) from None
    if kind == "pandas":
        import pandas as pd  # type: ignore[import-untyped]  # noqa: PLC0415  # it has no types of its own

        index = times.index if isinstance(times, pd.Series) else None
        name = times.name if isinstance(times, pd.Series | pd.Index) else None
        dtype = "Int64" if ticks.null_count else "int64"
        return pd.Series(ticks.to_pylist() if ticks.null_count else ticks.to_numpy(), index, dtype, name)
    if kind == "polars":
        import polars as pl  # noqa: PLC0415

        return pl.Series(times.name, ticks)
    if kind == "numpy" and not ticks.null_count:
        return ticks.to_numpy()
    return ticks if kind == "pyarrow" else ticks.to_pylist()
