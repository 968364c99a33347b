"""Lets Spark find the data source `smile` without registration: it looks for `DefaultSource` in all `pyspark_*`."""

from smile.spark.data_source import SmileDataSource as DefaultSource

__all__ = ["DefaultSource"]
