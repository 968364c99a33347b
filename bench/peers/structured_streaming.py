"""Trade-Floor in Spark's Structured Streaming, without SMILE. It runs in the environment of the project.

Spark does not support the program as one query (a join of two aggregates in update mode). So a function is called with
every micro-batch and manages the state itself: in dictionaries of the driver, which is fastest while it fits into one
process but is lost with it, or in Parquet files, a version a batch, from which a run can resume.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession, functions as f

from bench.by_hand import TradeFloorByHand
from bench.peers.prepare import matchable_rows
from bench.peers.protocol import (
    BUY,
    CORES,
    MATCH,
    SELL,
    PeerArguments,
    print_result,
    read_arguments,
    seconds_since_start,
)

_EVENTS = "kind tinyint, issue string, price long, buyid long, sellid long, shares long"
_STATE = "side tinyint, id long, issue string, price long, before long, remaining long, changed boolean"

Rows = Iterable[Sequence[Any]]


def main() -> None:
    arguments = read_arguments(SETTINGS)
    with tempfile.TemporaryDirectory() as folder:
        spark = _spark()
        state = SETTINGS[arguments.setting](spark, Path(folder))
        events = _read_stream(spark, arguments)
        startup_s = seconds_since_start()
        begin = time.perf_counter()
        query = (
            events.writeStream.foreachBatch(state.apply_batch)
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seconds = time.perf_counter() - begin
        print_result(f"Structured Streaming {pyspark.__version__}", arguments, startup_s, seconds, state.matchable())
        spark.stop()


def _spark() -> SparkSession:
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("Trade-Floor")
    for name, value in {
        "spark.driver.memory": "4g",
        "spark.log.level": "ERROR",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _read_stream(spark: SparkSession, arguments: PeerArguments) -> DataFrame:
    """Each micro-batch is one file."""
    reader = spark.readStream.schema(_EVENTS).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(arguments.events / "parquet"))


class DriverState:
    """Spark only reads the events; the driver applies them one by one."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.floor = TradeFloorByHand()

    def apply_batch(self, batch: DataFrame, number: int) -> None:
        apply_event = self.floor.apply_event
        columns = (column.to_pylist() for column in batch.toArrow().columns)
        for kind, issue, price, buy, sell, shares in zip(*columns, strict=True):
            if kind == MATCH:
                apply_event("Matches", (0, buy, sell, shares))
            elif kind == BUY:
                apply_event("BuyBids", (buy, issue, price, shares))
            else:
                apply_event("SellBids", (sell, issue, price, shares))

    def matchable(self) -> Rows:
        return matchable_rows(self.floor)


class ParquetState:
    """Version n has every bid that was open before batch n or changed in it. Version n + 1 is made from those with a
    remainder, positive or negative: it is negative if matches came before the bid itself."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.last_batch = -1
        spark.createDataFrame([], _STATE).write.parquet(self._path(-1))

    def _path(self, number: int) -> str:
        return str(self.folder / f"state-{number}")

    def _version(self, number: int) -> DataFrame:
        return self.spark.read.schema(_STATE).parquet(self._path(number))

    def apply_batch(self, batch: DataFrame, number: int) -> None:
        bids = self._version(number - 1).where("remaining <> 0")
        previous = bids.select(
            "side", "id", "issue", "price", f.col("remaining").alias("before"), f.lit(0).alias("delta")
        )
        (
            previous.withColumn("changed", f.lit(False))
            .unionByName(_deltas(batch))
            .groupBy("side", "id")
            .agg(
                f.max("issue").alias("issue"),
                f.max("price").alias("price"),
                f.sum("before").alias("before"),
                f.sum(f.col("before") + f.col("delta")).alias("remaining"),
                f.max("changed").alias("changed"),
            )
            .write.mode("overwrite")
            .parquet(self._path(number))
        )
        _changes(self._version(number)).write.format("noop").mode("overwrite").save()
        shutil.rmtree(self._path(number - 2), ignore_errors=True)
        self.last_batch = number

    def matchable(self) -> Rows:
        buys, sells = _sides(self._version(self.last_batch).where("remaining > 0"))
        pairs = buys.join(sells, ["issue", "price"])
        return pairs.select("issue", "price", "buyid", "buyremaining", "sellid", "sellremaining").collect()


SETTINGS: dict[str, Callable[[SparkSession, Path], DriverState | ParquetState]] = {
    "driver": DriverState,
    "parquet": ParquetState,
}


def _deltas(batch: DataFrame) -> DataFrame:
    """What each event adds to a bid, or subtracts from two."""
    sides = f.array(*(f.lit(side).cast("tinyint") for side in (BUY, SELL)))
    return (
        batch.withColumn("side", f.explode(sides))
        .withColumn("id", f.when(f.col("side") == BUY, f.col("buyid")).otherwise(f.col("sellid")))
        .where("id > 0")
        .withColumn("delta", f.when(f.col("kind") == MATCH, -f.col("shares")).otherwise(f.col("shares")))
        .select("side", "id", "issue", "price", f.lit(0).alias("before"), "delta", f.lit(True).alias("changed"))
    )


def _sides(bids: DataFrame) -> list[DataFrame]:
    """Buys and sells, with different column names except for the join columns."""
    return [
        bids.where(f.col("side") == number).select(
            "issue",
            "price",
            f.col("id").alias(f"{side}id"),
            f.col("before").alias(f"{side}before"),
            f.col("remaining").alias(f"{side}remaining"),
            f.col("changed").alias(f"{side}changed"),
        )
        for side, number in (("buy", BUY), ("sell", SELL))
    ]


def _changes(version: DataFrame) -> DataFrame:
    """Changes of all three views, in one relation so that Spark runs one job. A pair with a remainder of 0 or less is
    deleted."""
    buys, sells = _sides(version)
    pairs = (
        buys.join(sells, ["issue", "price"])
        .where("buychanged OR sellchanged")
        .where("(buybefore > 0 AND sellbefore > 0) OR (buyremaining > 0 AND sellremaining > 0)")
    )
    for side, bids in (("buy", buys), ("sell", sells)):
        changed = bids.where(f"{side}changed AND ({side}before > 0 OR {side}remaining > 0)")
        pairs = pairs.unionByName(changed, allowMissingColumns=True)
    return pairs


if __name__ == "__main__":
    main()
