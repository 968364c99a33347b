"""The command `smile`. Exit codes: 0 success, 1 failure (a wrong program, event or file), 2 a wrong command line,
70 an internal error, 130 interrupted. A traceback is shown only if SMILE_DEBUG is set."""

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smile import __version__
from smile.cli import (
    access,
    apply,
    dead_letters,
    demo,
    fmt,
    init,
    lsp,
    options,
    origins,
    postgres,
    postgres_serve,
    prepare,
    publish,
    resume,
    routing,
    serve,
    sql,
    status,
    subscribe,
    subscriptions,
    test,
)
from smile.cli.client import CaOption
from smile.cli.exits import discard_stdout, error_exit
from smile.cli.loading import loading
from smile.cli.replay.request import ReplayRequest, SparkOptions
from smile.errors import SmileError, render
from smile.source import Source

if TYPE_CHECKING:
    from smile.cli.replay.output import ReplayMetrics
    from smile.program import CompiledProgram

app = typer.Typer(
    name="smile",
    help="SMILE: publish events to streams, subscribe to views that are never false.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ProgramArgument = Annotated[
    str,
    typer.Argument(
        metavar="PROGRAM", help="A SmileSQL program, or MMPL if its name ends in .mmpl; - for standard input."
    ),
]


class ExplainStep(StrEnum):
    mmpl = "mmpl"
    types = "types"
    graph = "graph"
    stages = "stages"
    exports = "exports"
    plan = "plan"


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"smile {__version__}")
        raise typer.Exit


@app.callback()
def smile(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """SMILE: publish events to streams, subscribe to views that are never false."""


@app.command()
def check(program: ProgramArgument, imports: options.ImportsOption = None) -> None:
    """Compile a program, and report its errors and warnings.

    Exit code 0 if it can be run (there may be warnings), 1 if not.

    Example: smile check programs/tradefloor.smile
    """
    compiled = _compile(program, imports)
    if compiled.warnings:
        print(render(compiled.warnings, compiled.source), file=sys.stderr)
    stages = _count_stages(compiled)
    program_as_written = compiled.original
    counts = [_count_text(len(program_as_written.imports), "import")] if program_as_written.imports else []
    counts += [
        _count_text(len(program_as_written.streams), "stream"),
        _count_text(len(program_as_written.views), "view"),
        _count_text(len(program_as_written.subscriptions), "subscription"),
        _count_text(stages, "stage"),
    ]
    if compiled.warnings:
        counts.append(_count_text(len(compiled.warnings), "warning"))
    _print_output(f"{compiled.source.name}: ok: {', '.join(counts)}")


@app.command()
def explain(
    program: ProgramArgument,
    view: Annotated[
        str | None, typer.Option("--view", metavar="V", help="Only this view, and what it is computed from.")
    ] = None,
    step: Annotated[
        ExplainStep,
        typer.Option(
            "--as",
            help="mmpl: the program in relational algebra, as it will run. types: key, domain, range, steps and seal "
            "of every column. graph: relation and transform objects. stages: how the pipeline runs them. exports: what "
            "other brokers need to import its relations. plan: from which publishers its queries over global streams "
            "are answered.",
        ),
    ] = ExplainStep.types,
    imports: options.ImportsOption = None,
    broker: Annotated[
        str | None, typer.Option("--broker", metavar="NAME", help="For --as exports: what importers call this broker.")
    ] = None,
    network: Annotated[
        list[str] | None,
        typer.Option("--network", metavar="FILE", help="For --as plan: the program of another broker. Repeatable."),
    ] = None,
    finality: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--finality",
            metavar="VIEW KEY",
            help="Why a row is not final after the recorded --events. KEY is a JSON object, or the value of the only "
            "column of the key.",
        ),
    ] = None,
    events: Annotated[str | None, typer.Option("--events", metavar="FILE", help="For --finality.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    dot: Annotated[bool, typer.Option("--dot", help="Print the graph for Graphviz.")] = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print the graph for Mermaid.")] = False,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="For --as plan: instead of a PROGRAM, explain a SELECT at the broker that runs there.",
        ),
    ] = None,
    ca: CaOption = None,
) -> None:
    """Show how SMILE compiles a program, step by step; or how a broker that runs would answer a query over global
    streams.

    Example: smile explain programs/tradefloor.smile --as stages

    Example: smile explain "SELECT * FROM ntp WHERE psize > 1024" --as plan --url http://127.0.0.1:7400
    """
    if url is not None:
        if step is not ExplainStep.plan or network or imports or dot or mermaid:
            raise typer.BadParameter("--url is for --as plan, with --json or nothing else")
        from smile.cli.query_plan import explain_query  # noqa: PLC0415  # the client is slow to import

        _print_output(explain_query(program, url, ca, as_json=json))
        return
    if (dot or mermaid) and step not in (ExplainStep.graph, ExplainStep.plan):
        raise typer.BadParameter("--dot and --mermaid are for --as graph and --as plan")
    if network and step is not ExplainStep.plan:
        raise typer.BadParameter("--network is for --as plan")
    if json + dot + mermaid > 1:
        raise typer.BadParameter("choose one of --json, --dot and --mermaid")
    if (broker is not None) != (step is ExplainStep.exports):
        raise typer.BadParameter("--as exports and --broker belong together")
    if (finality is None) != (events is None):
        raise typer.BadParameter("--finality and --events belong together")
    form = "json" if json else "dot" if dot else "mermaid" if mermaid else "text"
    with loading():  # the compiler
        from smile.cli import explain as explanations  # noqa: PLC0415
        from smile.cli.plan_explanation import explain_plans  # noqa: PLC0415
    if step is ExplainStep.plan:
        programs = {Path(path).stem: _compile(path, imports, is_networked=True) for path in [program, *(network or ())]}
        try:
            _print_output(explain_plans(programs, form))
        except SmileError as problem:
            raise error_exit(problem) from None
        return
    compiled = _compile(program, imports)
    if finality is not None and events is not None:
        with loading():
            from smile.cli.finality import explain_finality  # noqa: PLC0415  # Arrow takes a while to import
        try:
            name, key = _find_view(finality[0], compiled), finality[1]
            _print_output(explain_finality(compiled, name, key, events, "json" if json else "text"))
        except SmileError as problem:
            raise error_exit(problem) from None
        return
    if view is not None:
        view = _find_view(view, compiled)
    if broker is not None:
        _print_output(explanations.explain_exports(compiled, broker, view))
        return
    explainers = {
        ExplainStep.mmpl: explanations.explain_mmpl,
        ExplainStep.types: explanations.explain_types,
        ExplainStep.graph: explanations.explain_graph,
        ExplainStep.stages: explanations.explain_stages,
    }
    _print_output(explainers[step](compiled, view, form))


MASTER_INVALID = "E067"
"""An error in the command line that is only found when Spark starts."""


@app.command()
def replay(
    program: ProgramArgument,
    events: options.EventsOption,
    engine: options.EngineOption = options.EngineKind.spark,
    master: options.MasterOption = None,
    partitions: options.PartitionsOption = None,
    batch: options.BatchSizeOption = None,
    view: options.ViewsOption = None,
    changes: options.ChangesOption = False,
    end: options.EndOption = False,
    skip_bad: options.SkipBadOption = False,
    bad_file: options.BadFileOption = None,
    state: options.StateOption = None,
    imports: options.ImportsOption = None,
    verbose: options.VerboseOption = False,
) -> None:
    """Run recorded events through a program, and print the rows of its views, a JSON object a line.

    An event is {"stream":"BuyBids","at":17,"event":{"issue":"IBM",…}}; a silence is {"stream":"BuyBids",
    "silence_to":500}, or for every stream {"silence_to":500}. Without "at", ticks count up. FILE may also be a
    directory that has a Parquet file, or a directory of them, for each stream; or the log of a broker.

    Spark has its usual configuration: spark-defaults.conf in the directory SPARK_CONF_DIR, and variables such as
    SPARK_DRIVER_MEMORY, which is 2g by default.

    Example: smile replay programs/tradefloor.smile --events programs/tradefloor.events
    """
    if program == events == "-":
        raise typer.BadParameter("the program and the events cannot both be standard input")
    compiled = _compile(program, imports)
    view_names = [_find_view(v, compiled) for v in view] if view else list(compiled.rewritten.subscriptions)
    views = list(dict.fromkeys(view_names))
    if not views:
        raise typer.BadParameter("the program subscribes to nothing; choose a view with --view")
    if bad_file is not None and not skip_bad:
        raise typer.BadParameter("--bad-file is for --skip-bad")
    bad_path = bad_file or ("events.bad" if events == "-" else f"{events}.bad")
    if Path(bad_path).exists() and Path(events).exists() and Path(bad_path).samefile(events):
        raise typer.BadParameter("--bad-file would overwrite the events")
    spark_options = None
    if engine is options.EngineKind.spark:
        spark_options = SparkOptions(master or options.MASTER_DEFAULT, partitions or 1, verbose)
        if master and master.startswith(("spark://", "k8s://", "yarn")) and state is None:
            raise typer.BadParameter("a cluster needs --state, a directory that all its machines reach")
    elif master or partitions or verbose:
        raise typer.BadParameter("--master, --partitions and --verbose are for --engine spark")
    request = ReplayRequest(views, events, batch, changes, end, bad_path if skip_bad else None, state, spark_options)
    print(_run_replay(compiled, request).text(), file=sys.stderr)


def _run_replay(compiled: "CompiledProgram", request: ReplayRequest) -> "ReplayMetrics":
    """Runs a replay. An error is printed and ends the command."""
    with loading():  # Arrow takes a second, which `check` and `explain` need not wait for
        from smile.cli.replay.replay import replay as run_replay  # noqa: PLC0415
        from smile.log.recorded_events import EventError  # noqa: PLC0415
    try:
        return run_replay(compiled, request)
    except EventError as problem:
        print(problem.bad.render(), file=sys.stderr)
        raise typer.Exit(1) from None
    except SmileError as problem:
        # An error without a position in the program is about files: its message names them.
        has_position = any(d.span is not None for d in problem.diagnostics)
        print(render(problem.diagnostics, compiled.source if has_position else Source("smile", "")), file=sys.stderr)
        raise typer.Exit(2 if problem.diagnostics[0].code == MASTER_INVALID else 1) from None
    except KeyboardInterrupt:
        discard_stdout()
        print("smile: interrupted: all printed lines are complete; later events were not processed", file=sys.stderr)
        raise typer.Exit(130) from None
    except BrokenPipeError:
        discard_stdout()
        raise typer.Exit(0) from None
    except OSError as problem:
        discard_stdout()
        print(f"smile: the output cannot be written: {problem.strerror}", file=sys.stderr)
        raise typer.Exit(1) from None


def _count_stages(compiled: "CompiledProgram") -> int:
    """The number of stages. An error is printed and ends the command."""
    with loading():  # Arrow takes half a second, which a program with errors need not wait for
        from smile.engine.plan import partitioned_stages  # noqa: PLC0415
        from smile.kernels.compile import compile_graph  # noqa: PLC0415
    try:
        return len(partitioned_stages(compiled.graph, compile_graph(compiled.graph, compiled.rewritten.log_streams)))
    except SmileError as problem:
        print(render(problem.diagnostics, compiled.source), file=sys.stderr)
        raise typer.Exit(1) from None


def _compile(path: str, imports: Sequence[str] | None, is_networked: bool = False) -> "CompiledProgram":
    """Compiles a program, with the recorded types in these files. Its errors are printed and end the command."""
    with loading():
        from smile.program import compile_program, read_program, read_recorded_types  # noqa: PLC0415
    source = Source(path, "")
    try:
        source = read_program(path)
        return compile_program(source, read_recorded_types(imports or ()), is_networked=is_networked)
    except SmileError as problem:
        print(render(problem.diagnostics, source), file=sys.stderr)
        raise typer.Exit(1) from None


def _find_view(view: str, compiled: "CompiledProgram") -> str:
    names = [n for n, r in compiled.graph.relations.items() if r.is_named]
    matches = [n for n in names if n == view] or [n for n in names if n.casefold() == view.casefold()]
    if not matches:
        raise typer.BadParameter(f"there is no stream or view {view}; there are {', '.join(names)}")
    return matches[0]


def _print_output(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # The reader of the output has closed it, which is not an error.
        discard_stdout()
    except OSError as problem:
        print(f"smile: the output cannot be written: {problem.strerror}", file=sys.stderr)
        discard_stdout()
        raise typer.Exit(1) from None


def _count_text(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


access.register(app)
serve.register(app)
apply.register(app)
resume.register(app)
origins.register(app)
postgres_serve.register(postgres.commands)
prepare.register(app)
routing.register(app)
publish.register(app)
subscribe.register(app)
subscriptions.register(app)
dead_letters.register(app)
status.register(app)
demo.register(app)
fmt.register(app)
init.register(app)
lsp.register(app)
postgres.register(app)
sql.register(app)
test.register(app)


def main() -> None:
    try:
        app()
    except ImportError:
        raise  # `smile.cli.entry` reports it
    except Exception as problem:
        if os.environ.get("SMILE_DEBUG"):
            raise
        print(f"smile: internal error: {type(problem).__name__}: {problem}", file=sys.stderr)
        print("  hint: This is a bug in SMILE. Set SMILE_DEBUG=1 to see where.", file=sys.stderr)
        sys.exit(70)


if __name__ == "__main__":
    main()
