"""A driver of its own process, which kills itself at a step of its third batch, or never: `driver.py FOLDER STEP`."""

import json
import os
import signal
import sys
from pathlib import Path

from smile.engine.local import BatchResult
from smile.engine.spark.pipeline_directory import PipelineDirectory
from smile.engine.spark.planning import Offset
from smile.engine.spark.session import spark_session
from smile.log.storage.durable import DurableLog
from tests.engine.spark import workload
from tests.engine.spark.comparison import COMMIT_PER_BATCH, batch_messages, make_pipeline

BATCHES = 3


def main() -> None:
    folder, step = Path(sys.argv[1]), sys.argv[2]
    spark = spark_session("local[2]", "driver", folder / "spark.log")
    log = DurableLog(str(folder / "log"), workload.program().streams)
    pipeline = make_pipeline(spark, workload.program(), log, folder / "state", 2, COMMIT_PER_BATCH, [])
    out = (folder / "messages").open("a")
    views, kernels = workload.program().subscriptions, pipeline.job.plans["0"].kernels
    delivered = 0

    def at(name: str) -> None:
        if delivered == BATCHES and name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def deliver(batch: BatchResult) -> None:
        nonlocal delivered
        delivered += 1
        at("before delivery")
        out.write(json.dumps([pipeline.offset.number, batch_messages(kernels, views, batch)]) + "\n")
        out.flush()
        at("after delivery")

    class Noting(PipelineDirectory):
        def write_delivered(self, offset: Offset, hard: bool = False) -> None:
            super().write_delivered(offset, hard)
            at("after the note")

    pipeline.deliver = deliver
    pipeline.directory = Noting(str(folder / "state"))
    pipeline.start(available_now=True)
    while not pipeline.wait():
        pass
    spark.stop()


if __name__ == "__main__":
    main()
