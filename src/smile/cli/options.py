"""Options of commands that compile a program, and of `smile replay`, with their help texts."""

from enum import StrEnum
from typing import Annotated

import typer

from smile import limits


class EngineKind(StrEnum):
    spark = "spark"
    local = "local"


MASTER_DEFAULT = "local[*]"

EventsOption = Annotated[
    str,
    typer.Option("--events", metavar="FILE", help="Recorded events, a JSON object a line; - for standard input."),
]
EngineOption = Annotated[
    EngineKind, typer.Option("--engine", help="spark: a pipeline on Spark. local: in this process, without Java.")
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help=f"Where Spark runs: {MASTER_DEFAULT} is this machine, spark://HOST:PORT a cluster, whose machines must "
        f"share the directory of --state [default: {MASTER_DEFAULT}].",
    ),
]
PartitionsOption = Annotated[
    int | None,
    typer.Option(
        "--partitions",
        min=1,
        max=limits.partitions_max,
        metavar="P",
        help="Number of partitions of the work and the state [default: 1].",
    ),
]
BatchSizeOption = Annotated[
    int | None,
    typer.Option(
        "--batch",
        min=1,
        metavar="N",
        help="Lines in a batch [default: 10,000; on Spark batches grow with the backlog].",
    ),
]
ViewsOption = Annotated[
    list[str] | None,
    typer.Option("--view", metavar="V", help="Show this view; may be repeated [default: the views subscribed to]."),
]
ChangesOption = Annotated[
    bool, typer.Option("--changes", help="Print every change, and the progress after each batch.")
]
EndOption = Annotated[
    bool, typer.Option("--end", help="End all streams after the last event, so that all rows become final.")
]
SkipBadOption = Annotated[
    bool, typer.Option("--skip-bad", help="Continue after a refused line, and write it to the file of bad lines.")
]
BadFileOption = Annotated[
    str | None, typer.Option("--bad-file", metavar="FILE", help="The file of bad lines [default: EVENTS.bad].")
]
StateOption = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="DIR",
        help="Store the state there after every batch. A run with the same events, and more, continues from it.",
    ),
]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Show Spark's messages.")]
ImportsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--imports",
        metavar="FILE",
        help="Recorded types of the relations that the program imports, as `smile explain --as exports` prints them; "
        "may be repeated.",
    ),
]
