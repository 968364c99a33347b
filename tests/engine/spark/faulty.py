"""A job some of whose tasks fail once they have written their state: Spark tries them again."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random

from smile.engine.spark.job import Job


@dataclass(frozen=True)
class FailingJob(Job):
    """`notes` is a directory with a file for each failure; there are at most `failures`."""

    notes: str = ""
    failures: int = 0

    @cached_property
    def stage_count(self) -> int:
        return super().stage_count

    def __getattribute__(self, name: str) -> object:
        # The number of stages is asked for just after a task has written its state.
        if name == "stage_count" and object.__getattribute__(self, "notes"):
            self._fail()
        return object.__getattribute__(self, name)

    def _fail(self) -> None:
        import traceback  # noqa: PLC0415

        if not any(frame.name == "_exchange_messages" for frame in traceback.extract_stack()):
            return
        folder = Path(object.__getattribute__(self, "notes"))
        done = len(list(folder.iterdir()))
        if done < object.__getattribute__(self, "failures") and Random().random() < 0.3:
            (folder / f"{done}-{Random().random()}").touch()
            raise RuntimeError("the task fails")
