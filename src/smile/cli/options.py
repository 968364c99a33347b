"""The options of `smile replay`, each with what it says of itself."""

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
        f"reach the directory of --state [default: {MASTER_DEFAULT}].",
    ),
]
PartitionsOption = Annotated[
    int | None,
    typer.Option(
        "--partitions",
        min=1,
        max=limits.partitions_max,
        metavar="P",
        help="Into how many parts the work is cut [default: 1].",
    ),
]
BatchSizeOption = Annotated[
    int | None,
    typer.Option(
        "--batch",
        min=1,
        metavar="N",
        help="So many lines are taken in at once [default: 10,000, and on Spark as many as have come].",
    ),
]
ViewsOption = Annotated[
    list[str] | None,
    typer.Option("--view", metavar="V", help="Show this view; may be given again. Else those subscribed to."),
]
ChangesOption = Annotated[
    bool, typer.Option("--changes", help="Every change as it comes, and after each batch how far all is known.")
]
EndOption = Annotated[bool, typer.Option("--end", help="All streams end with the events, so that all is final.")]
SkipBadOption = Annotated[
    bool, typer.Option("--skip-bad", help="Go on after a line that is refused; it goes to the file of bad lines.")
]
BadFileOption = Annotated[
    str | None, typer.Option("--bad-file", metavar="FILE", help="Where those go [default: EVENTS.bad].")
]
StateOption = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="DIR",
        help="Keep the state there after every batch; a run with the same events, and more, goes on from it.",
    ),
]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Show what Spark says.")]
