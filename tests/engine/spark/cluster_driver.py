"""A driver in its own process, since a session has one master: `cluster_driver.py MASTER FOLDER MACHINE`.

It runs the same history twice, in the folders WHOLE and LOST. During the second run, MACHINE is lost. Its messages and
warnings are written to files there.
"""

import json
import sys
from dataclasses import fields
from pathlib import Path

from pyspark.sql import SparkSession

from smile.engine.local import BatchResult
from smile.engine.spark.session import spark_session
from tests.engine.spark import workload
from tests.engine.spark.cluster import LosingJob
from tests.engine.spark.comparison import COMMIT_PER_BATCH, batch_messages, make_pipeline, recorded, rows_of

WHOLE, LOST = "whole", "lost"
PARTITIONS = 3
LOST_AT = 5
"""The version that a machine writes as it is lost."""


def run(spark: SparkSession, folder: Path, machine: int | None) -> None:
    folder.mkdir()
    log = recorded(workload.program(), workload.frames(), folder / "log")
    trouble: list[str] = []
    state = folder / "state"
    pipeline = make_pipeline(spark, workload.program(), log, state, PARTITIONS, COMMIT_PER_BATCH, [], trouble.append)
    if machine is not None:
        same = {field.name: getattr(pipeline.job, field.name) for field in fields(pipeline.job)}
        pipeline.job = LosingJob(**same, machine=machine, number=LOST_AT)
    views, kernels = workload.program().subscriptions, pipeline.job.plans["0"].kernels
    outputs = []

    def deliver(batch: BatchResult) -> None:
        outputs.append([pipeline.offset.number, batch_messages(kernels, views, batch)])

    pipeline.deliver = deliver
    pipeline.start(available_now=True)
    while not pipeline.wait():
        pass
    out = {"messages": outputs, "rows": rows_of(pipeline, views), "trouble": trouble}
    (folder / "out.json").write_text(json.dumps(out))


def main() -> None:
    master, folder, machine = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    spark = spark_session(master, "cluster", folder / "spark.log")
    run(spark, folder / WHOLE, None)
    run(spark, folder / LOST, machine)
    spark.stop()


if __name__ == "__main__":
    main()
