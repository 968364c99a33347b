"""All uses of PySpark's private parts. A new version of PySpark may change any of them without notice;
`tests/test_library_internals.py` says which.
"""

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.functions import PythonEvalType, vectorized_udf  # type: ignore[attr-defined]

CONNECTION_FILE_VARIABLE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""Spark's Java process writes the port and the secret of its gateway to the file that this variable names."""


def find_spark_home() -> Path:
    return Path(_find_spark_home())


def connect_to_java(connection_info: bytes, temporary_directory: str) -> None:
    """Makes the Java process PySpark's own. `connection_info` is the content of its connection file. Java deletes the
    directory if this process is killed."""
    port, size = struct.unpack(">ii", connection_info[:8])
    variables = {
        "PYSPARK_GATEWAY_PORT": str(port),
        "PYSPARK_GATEWAY_SECRET": connection_info[8 : 8 + size].decode(),
    }
    os.environ.update(variables)
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]  # it connects to what these name
    finally:
        for variable in variables:
            del os.environ[variable]
    SparkContext._ensure_initialized(gateway=gateway)
    folder = gateway.jvm.java.io.File(temporary_directory)
    gateway.jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(folder)


def reset() -> None:
    """Clears PySpark's global state, so that this process can start another Java process."""
    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    if context is not None:
        context._jsc = None  # the Java side no longer exists
        context.stop()
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    if gateway is not None:
        gateway.close()
    SparkContext._gateway = SparkContext._jvm = None


def silence_accumulator_server(context: SparkContext) -> None:
    """When Java is lost, the next call to it fails. A stack trace from PySpark's own thread adds nothing."""
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]


def map_in_arrow(dataframe: DataFrame, function: Callable[[Any], Any], schema: str) -> DataFrame:
    """`DataFrame.mapInArrow` without its check that pandas is installed, which is not needed here."""
    udf = vectorized_udf(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = udf(*[dataframe[name] for name in dataframe.columns])
    return type(dataframe)(dataframe._jdf.mapInArrow(column._jc, False, None), dataframe.sparkSession)
