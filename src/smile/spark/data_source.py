"""The data source `smile`: views and streams of a broker as DataFrames, and DataFrames as publications.

Spark creates it in processes of its own: on the driver's machine to plan, and in its workers. Each part imports what it
needs.
"""

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from smile.errors import error
from smile.spark.options import SourceOptions, shown_errors

FORMAT = "smile"


class SmileDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        with shown_errors():
            self.source_options = SourceOptions.parse(options)

    def schema(self) -> StructType:
        """The same for rows and for changes: Spark does not say which are read."""
        from smile.spark.log_readers import StreamLog  # noqa: PLC0415
        from smile.spark.view_readers import describe_view, view_schema  # noqa: PLC0415

        with shown_errors():
            if self.source_options.reads_stream:
                return StreamLog.open(self.source_options).spark_schema()
            return view_schema(self.source_options, describe_view(self.source_options)).spark_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        from smile.spark.log_readers import LogReader, StreamLog  # noqa: PLC0415
        from smile.spark.view_readers import SnapshotReader, describe_view  # noqa: PLC0415

        with shown_errors():
            if self.source_options.reads_stream:
                return LogReader(StreamLog.open(self.source_options))
            return SnapshotReader(self.source_options, describe_view(self.source_options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        from smile.spark.log_readers import LogStreamReader, StreamLog  # noqa: PLC0415
        from smile.spark.view_readers import ChangeReader, describe_view  # noqa: PLC0415

        with shown_errors():
            if self.source_options.reads_stream:
                return LogStreamReader(StreamLog.open(self.source_options))
            return ChangeReader(self.source_options, describe_view(self.source_options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from smile.spark.stream_writers import StreamWriter  # noqa: PLC0415

        with shown_errors():
            return StreamWriter(self._publishing_options(overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from smile.spark.stream_writers import MicroBatchWriter  # noqa: PLC0415

        with shown_errors():
            return MicroBatchWriter(self._publishing_options(overwrite))

    def _publishing_options(self, overwrite: bool) -> SourceOptions:
        if overwrite:
            hint = 'Use the mode append: .mode("append"), or .outputMode("append").'
            raise error("E171", "events of a stream are never replaced", hint=hint)
        assert self.source_options.required_stream
        return self.source_options
