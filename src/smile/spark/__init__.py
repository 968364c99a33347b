"""SMILE in a Spark session: the data source `smile`, and `run`, which runs a program over the session's own streams.

The data source is found without registration (`pyspark_smile`). Its processes import single modules of this package, so
`run` is loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smile.spark.data_source import SmileDataSource
    from smile.spark.session_program import SessionProgram, run

_MODULES = {
    "SessionProgram": "smile.spark.session_program",
    "SmileDataSource": "smile.spark.data_source",
    "run": "smile.spark.session_program",
}

__all__ = ["SessionProgram", "SmileDataSource", "run"]


def __getattr__(name: str) -> Any:  # Any: whatever the module exports
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
