"""The options of `smile replay`."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SparkOptions:
    """Where a pipeline runs, and in how many partitions. With `verbose`, Java's output is shown."""

    master: str
    partitions: int
    verbose: bool


@dataclass(frozen=True)
class ReplayRequest:
    """The options of a replay. Without `batch`, a batch has `BATCH_DEFAULT` lines in this process, and grows with the
    backlog on Spark. `bad` is the file for refused lines; without it the first refused line ends the replay. `state` is
    the directory where state is stored between runs. Without `spark`, the replay runs in this process."""

    views: Sequence[str]
    events: str
    batch: int | None
    changes: bool
    end: bool
    bad: str | None
    state: str | None
    spark: SparkOptions | None
