"""`smile serve`: runs a broker until it is stopped. Every setting of `smile.settings` has a flag, which is generated
from its definition."""

import inspect
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread, Timer
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smile import limits
from smile.cli.access import ConfigOption
from smile.cli.exits import discard_stdout, error_exit, load_settings
from smile.cli.loading import loading
from smile.errors import SmileError
from smile.extras import require_extra
from smile.java import java_home
from smile.memory import limit_memory
from smile.settings import SETTINGS, Setting, Settings
from smile.source import Source
from smile.temporary_folder import temporary_folder

if TYPE_CHECKING:
    from smile.broker.broker import Broker

READY_POLL_S = 0.1
_PRIVATE_UMASK = 0o077

log = logging.getLogger("smile.serve")

OptionalProgramArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PROGRAM",
        help="A SmileSQL program, or MMPL if its name ends in .mmpl [default: the program that ran last].",
    ),
]


def serve(program: str | None, config: str | None, **flags: Any) -> None:  # Any: the flags are str, bool or None
    """Run a broker: accept events, maintain the views of the program, serve subscribers.

    It starts with an empty directory, or continues with one that a broker has left, even by a crash. If PROGRAM has
    changed since it was last served, it is applied; otherwise the broker continues with the program that ran last,
    which may be one of `smile apply`. SIGTERM or Ctrl-C stops the broker cleanly.

    Settings come from a file (--config), the environment (such as SMILE_LISTEN) and the flags below; the later ones
    override the earlier ones.

    Example: smile serve programs/tradefloor.smile --data /var/lib/smile
    """
    with loading():  # the compiler
        from smile.program import read_program  # noqa: PLC0415
    settings = load_settings(config, **flags)
    serve_source(lambda: read_program(program) if program is not None else None, settings)


def serve_source(read: Callable[[], Source | None], settings: Settings) -> None:
    """Runs a broker with the program that is read, or the one that ran last."""
    source = None
    try:
        settings.require_safe()
        settings.require_files()
        source = read()
        with _private_files(), _interrupt_on_sigterm(), temporary_folder():
            _run_broker(source, settings)
    except SmileError as problem:
        raise error_exit(problem, source) from None
    except KeyboardInterrupt:
        print("smile: interrupted: all acknowledged events are in the log", file=sys.stderr)


@contextmanager
def _private_files() -> Iterator[None]:
    """Nobody else may read what the broker writes, nor what its Java process and workers write, which inherit this."""
    previous = os.umask(_PRIVATE_UMASK)
    try:
        yield
    finally:
        os.umask(previous)


def _run_broker(source: Source | None, settings: Settings) -> None:
    if settings.memory_max:
        limit_memory(settings.memory_max)
    # Arrow and the web libraries take a second to import, which other commands need not wait for.
    from smile.broker.broker import Broker  # noqa: PLC0415
    from smile.broker.program_difference import subscribed_views  # noqa: PLC0415
    from smile.gateway import logs  # noqa: PLC0415
    from smile.gateway.access import ACCESS_FILE, Access  # noqa: PLC0415
    from smile.gateway.links.description_client import DescriptionClient  # noqa: PLC0415
    from smile.gateway.serve import open_listener, run  # noqa: PLC0415

    if settings.engine == "spark":
        require_extra("spark")
        java_home()  # raises an error if there is none: nothing would ever be ready
    logs.set_up_logging(settings.log_format, settings.log_level)
    data = Path(settings.data)
    with ExitStack() as stack:
        # Whether it can listen is known before anything is started.
        listener = stack.enter_context(open_listener(settings))
        access = Access(data / ACCESS_FILE, settings.requires_tokens)
        stack.callback(access.close)
        descriptions = DescriptionClient(settings.brokers, limits.first_answer_s_max)
        broker = Broker.open(data, source, settings, fetch_description=descriptions.fetch)
        descriptions.answer_s_max = limits.neighbour_answer_s_max
        descriptions.find_neighbours = lambda: broker.links.neighbours
        try:
            if settings.postgres.url:
                _start_database_service(broker, settings.postgres.url)
            if settings.sources or settings.sinks:
                _start_connectors(broker, data)
            compiled = broker.compiled
            for warning in compiled.warnings:
                line = compiled.source.line_col(warning.span.start)[0] if warning.span else None
                log_fields = {"code": warning.code, "program": compiled.source.name, "line": line, "hint": warning.hint}
                logging.getLogger("smile.program").warning(warning.message, extra=log_fields)
            views = ", ".join(subscribed_views(compiled.original)) or "no views yet"
            on_spark = f"on Spark at {settings.master} (by a stand-in in this process until Spark has caught up)"
            engine_text = on_spark if settings.engine == "spark" else "in this process"
            start_fields = {"program": compiled.source.name, "engine": settings.engine, "data": settings.data}

            def announce(line: str) -> None:
                if line.startswith("listening"):
                    log.info("the broker has started", extra=start_fields)
                    if broker.program_note:
                        log.warning("which program runs", extra={"what": broker.program_note})
                        _print_line(f"running {broker.program_note}")
                    _print_line(f"serving {compiled.source.name}: {views}; maintained {engine_text}, data in {data}")
                    if broker.descriptions.is_waiting:
                        _print_line(broker.descriptions.text)
                _print_line(line)
                if line.startswith("the console"):
                    Thread(target=_announce_ready, args=(broker,), name="ready", daemon=True).start()

            run(broker, settings, access, listener, announce, _limit_time_to_exit)
            log.info("the broker has stopped")
        finally:
            broker.stop()
    if broker.has_unfinished_work:
        log.warning("a batch was not waited for: it is repeated after the next start")
        _exit_now(0)


def _start_database_service(broker: "Broker", url: str) -> None:
    from smile.postgres.service import PostgresService  # noqa: PLC0415  # slow to import

    service = PostgresService(broker, url)
    broker.attach(service)
    service.start()


def _start_connectors(broker: "Broker", data: Path) -> None:
    from smile.connectors.service import ConnectorService  # noqa: PLC0415  # slow to import

    service = ConnectorService(broker, data / "connectors.sqlite")
    broker.attach(service)
    broker.dead_letters = service
    service.start()


def _limit_time_to_exit() -> None:
    """Ends the process in time, whatever it is doing."""
    deadline = Timer(limits.exit_s_max, _exit_now, [1])
    deadline.daemon = True
    deadline.start()


def _exit_now(code: int) -> None:
    """Ends the process without waiting for its threads. All acknowledged events are on the disk."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _announce_ready(broker: "Broker") -> None:
    """Prints "ready" when the engine has started, the descriptions of all imports are known and views follow. Events
    are accepted before that."""
    from smile.broker.program_difference import subscribed_views  # noqa: PLC0415

    is_waiting = broker.descriptions.is_waiting
    while (health := broker.health) in ("starting", "failing") or (
        health != "stopping" and broker.descriptions.is_waiting
    ):
        time.sleep(READY_POLL_S)
    if is_waiting and health != "stopping":
        views = ", ".join(subscribed_views(broker.compiled.original))
        _print_line(f"all descriptions are known; serving {broker.compiled.source.name}: {views}")
    if health != "stopping":
        _print_line("ready")


def _print_line(line: str) -> None:
    """Prints a line, in one piece: several threads print. A closed standard output does not stop the broker."""
    try:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except OSError:
        discard_stdout()


@contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """Treats SIGTERM like Ctrl-C, until the server installs its own handler."""
    old_handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old_handler)


def _flag_parameter(setting: Setting) -> inspect.Parameter:
    default = "" if setting.default in (None, (), "") else f" [default: {_default_text(setting)}]"
    text = setting.meaning.removesuffix(".") + f"{default}."
    if setting.is_switch:
        kind: object = Annotated[bool | None, typer.Option(f"{setting.flag}/--no-{setting.flag[2:]}", help=text)]
    else:
        kind = Annotated[str | None, typer.Option(setting.flag, metavar=setting.placeholder, help=text)]
    return inspect.Parameter(setting.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def _default_text(setting: Setting) -> str:
    if setting.is_switch:
        return setting.flag if setting.default else f"--no-{setting.flag[2:]}"
    return str(setting.default)


def _refuse_port(value: str | None) -> None:
    if value is not None:
        raise typer.BadParameter(f"the address and the port are one setting: write --listen 127.0.0.1:{value}")


_PortOption = Annotated[str | None, typer.Option("--port", hidden=True, expose_value=False, callback=_refuse_port)]
"""What others call it: the most similar flag would be --hosts."""


def add_flags(command: Callable[..., None], argument: inspect.Parameter) -> None:
    """Gives a command its argument, --config, and a flag for each setting."""
    config = inspect.Parameter("config", argument.kind, default=None, annotation=ConfigOption)
    flags = [_flag_parameter(setting) for setting in SETTINGS.values()]
    port = inspect.Parameter("port", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_PortOption)
    # Typer derives the options of a command from the signature of its function.
    command.__signature__ = inspect.Signature([argument, config, *flags, port])  # type: ignore[attr-defined]


def register(app: typer.Typer) -> None:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    add_flags(serve, inspect.Parameter("program", kind, default=None, annotation=OptionalProgramArgument))
    app.command()(serve)
