"""`smile serve`: a broker from its settings, until it is told to end. Every setting has a flag, made from what
`smile.settings` says of it."""

import inspect
import logging
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smile.cli.access import ConfigOption
from smile.cli.exits import discard_stdout, error_exit, load_settings
from smile.errors import SmileError
from smile.program import read_source
from smile.settings import SETTINGS, Setting, Settings
from smile.source import Source

if TYPE_CHECKING:
    from smile.broker.broker import Broker

READY_POLL_S = 0.1

log = logging.getLogger("smile.serve")

OptionalProgramArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PROGRAM", help="A SmileSQL program, or MMPL if its name ends in .mmpl. Else the one that ran last."
    ),
]


def serve(program: str | None, config: str | None, **flags: Any) -> None:  # Any: the flags are str, bool or None
    """Run a broker: take events, keep the program's views, tell subscribers.

    It begins on an empty directory, and goes on from one that was left, by a crash too. A PROGRAM that has changed
    since it was last served is applied; otherwise the program goes on that ran last, which `smile apply` may have made.
    SIGTERM, or Ctrl-C, ends it in order.

    Settings come from a file (--config), then from the environment (SMILE_LISTEN), then from the flags below.

    Example: smile serve programs/tradefloor.smile --data /var/lib/smile
    """
    settings = load_settings(config, **flags)
    source = None
    try:
        settings.require_safe()
        source = read_source(program) if program is not None else None
        with _interrupt_on_sigterm():
            _run_broker(source, settings)
    except SmileError as problem:
        raise error_exit(problem, source) from None
    except KeyboardInterrupt:
        print("smile: interrupted: what was acknowledged is in the log", file=sys.stderr)


def _run_broker(source: Source | None, settings: Settings) -> None:
    # Arrow and the web's libraries take a second to load, which other commands need not.
    from smile.broker.broker import Broker  # noqa: PLC0415
    from smile.broker.program_difference import subscribed_views  # noqa: PLC0415
    from smile.gateway import logs  # noqa: PLC0415
    from smile.gateway.access import ACCESS_FILE, Access  # noqa: PLC0415
    from smile.gateway.serve import run  # noqa: PLC0415

    logs.set_up_logging(settings.log_format, settings.log_level)
    data = Path(settings.data)
    access = Access(data / ACCESS_FILE, settings.requires_tokens)
    try:
        broker = Broker.open(data, source, settings)
        try:
            compiled = broker.compiled
            for warning in compiled.warnings:
                line = compiled.source.line_col(warning.span.start)[0] if warning.span else None
                log_fields = {"code": warning.code, "program": compiled.source.name, "line": line, "hint": warning.hint}
                logging.getLogger("smile.program").warning(warning.message, extra=log_fields)
            views = ", ".join(subscribed_views(compiled.original))
            engine_text = f"on Spark at {settings.master}" if settings.engine == "spark" else "in this process"
            start_fields = {"program": compiled.source.name, "engine": settings.engine, "data": settings.data}
            log.info("the broker has started", extra=start_fields)
            _print_line(f"serving {compiled.source.name}: {views}; kept {engine_text}, data in {data}")

            def say(line: str) -> None:
                _print_line(line)
                if not line.startswith("listening"):
                    return
                Thread(target=_announce_ready, args=(broker,), name="ready", daemon=True).start()

            run(broker, settings, access, say)
            log.info("the broker has stopped")
        finally:
            broker.stop()
    finally:
        access.close()


def _announce_ready(broker: "Broker") -> None:
    """Spark takes its time to start; events are taken meanwhile."""
    while broker.health == "starting":
        time.sleep(READY_POLL_S)
    if broker.health == "ok":
        _print_line("ready")


def _print_line(line: str) -> None:
    """A broker goes on though nobody listens to what it says."""
    try:
        print(line, flush=True)
    except OSError:
        discard_stdout()


@contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """SIGTERM is as good as Ctrl-C, until what serves has its own way of ending."""

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


def register(app: typer.Typer) -> None:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    leading = [
        inspect.Parameter("program", kind, default=None, annotation=OptionalProgramArgument),
        inspect.Parameter("config", kind, default=None, annotation=ConfigOption),
    ]
    flags = [_flag_parameter(setting) for setting in SETTINGS.values()]
    # Typer makes a command's options of a function's signature.
    serve.__signature__ = inspect.Signature([*leading, *flags])  # type: ignore[attr-defined]
    app.command()(serve)
