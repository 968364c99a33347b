"""The broker's own log: one line for each record, as JSON or text, without secrets.

Records have a message and, as `extra=`, fields. Only SMILE's own loggers log below `warning`: the lower records of
libraries are noise, and contain headers.
"""

import logging
import re
import sys
import threading
import time
from collections.abc import Mapping
from typing import Final, TextIO

import msgspec

from smile import limits
from smile.settings import TOKEN_PREFIX

REDACTED: Final = "[secret]"

_SECRETS: Final = re.compile(
    rf"{TOKEN_PREFIX}[\w-]+"
    r"|(?<=bearer )[^\s\"',;]+|(?<=basic )[^\s\"',;]+|(?<=smile\.token\.)[^\s\"',;]+"
    r"|(?<=token=)[^\s\"'&;]+|(?<=token%3d)[^\s\"'&;]+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.IGNORECASE | re.DOTALL,
)
"""Tokens as the broker creates them, anything sent as a token, and private keys."""

_STANDARD_ATTRIBUTES: Final = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


def redact(text: str) -> str:
    return _SECRETS.sub(REDACTED, text)


def set_up_logging(log_format: str, level: str, stream: TextIO | None = None) -> None:
    """Sends everything that this process logs to `stream`, by default standard error."""
    handler = _QuietHandler(stream or sys.stderr)
    if log_format == "auto":
        log_format = "text" if handler.stream.isatty() else "json"
    handler.setFormatter({"json": JsonFormatter, "text": TextFormatter}[log_format]())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()]))
    logging.getLogger("smile").setLevel(level.upper())
    threading.excepthook = _log_thread_failure


class _QuietHandler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging calls it so
        """Ignores errors: a broker continues if nobody reads its log, or if the log's disk is full."""


def _log_thread_failure(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is SystemExit:
        return
    name = args.thread.name if args.thread else "?"
    exc_info = (args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback)
    logging.getLogger("smile").error("a thread has ended with an error", exc_info=exc_info, extra={"thread_name": name})


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z info smile.broker: the broker is ready views=3`"""

    def format(self, record: logging.LogRecord) -> str:
        parts = [
            _single_line(record.getMessage()),
            *(f"{name}={_single_line(v)}" for name, v in _fields(record).items()),
        ]
        if traceback := _traceback_text(self, record):
            parts.append(_single_line(traceback))
        return f"{_timestamp(record)} {record.levelname.lower()} {record.name}: {' '.join(parts)}"


class JsonFormatter(logging.Formatter):
    """`{"at":"2026-01-31T12:00:00.123Z","level":"info","logger":"smile.broker","message":"the broker is ready",…}`"""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _safe_text(record.getMessage()),
        }
        line |= {name: value for name, value in _fields(record).items() if name not in line}
        if traceback := _traceback_text(self, record):
            line["traceback"] = _safe_text(traceback)
        return msgspec.json.encode(line).decode()


def _timestamp(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z"


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """The fields of `extra=`, as values that every JSON reader accepts."""
    return {name: _json_value(value) for name, value in vars(record).items() if name not in _STANDARD_ATTRIBUTES}


def _json_value(value: object) -> object:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        # Many JSON readers lose digits beyond 2^53, and ticks are larger.
        return value if abs(value) <= 2**53 else str(value)
    if isinstance(value, Mapping):
        return {_safe_text(str(k)): _json_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_json_value(v) for v in value]
    return _safe_text(str(value))


def _safe_text(text: str) -> str:
    # Redact before shortening, so that no part of a secret remains. The first limit bounds the time to redact.
    text = redact(text[: 2 * limits.log_value_chars_max]).encode(errors="replace").decode()
    return text if len(text) <= limits.log_value_chars_max else text[: limits.log_value_chars_max] + "…"


def _single_line(value: object) -> str:
    """The value on one line, whatever a client sent."""
    text = _safe_text(value if isinstance(value, str) else msgspec.json.encode(value).decode())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _traceback_text(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info else ""
