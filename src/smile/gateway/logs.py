"""What a broker writes of itself: a line for each record, JSON or text, and never a secret in it.

Records have a message and, as `extra=`, fields. Only SMILE's own loggers go below `warning`: what libraries tell
there is noise, and has headers in it.
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

HIDDEN: Final = "[secret]"

_SECRETS: Final = re.compile(
    rf"{TOKEN_PREFIX}[\w-]+"
    r"|(?<=bearer )[^\s\"',;]+|(?<=basic )[^\s\"',;]+|(?<=smile\.token\.)[^\s\"',;]+"
    r"|(?<=token=)[^\s\"'&;]+|(?<=token%3d)[^\s\"'&;]+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.IGNORECASE | re.DOTALL,
)
"""Tokens as they are made, whatever is sent in a token's place, and keys."""

_NO_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


def redacted(text: str) -> str:
    return _SECRETS.sub(HIDDEN, text)


def set_up(form: str, level: str, stream: TextIO | None = None) -> None:
    """From now on everything that is logged in this process goes to `stream`, standard error if none is given."""
    handler = _Quiet(stream or sys.stderr)
    handler.setFormatter({"json": Json, "text": Text}[form]())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()]))
    logging.getLogger("smile").setLevel(level.upper())
    threading.excepthook = _thread_failed


class _Quiet(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging calls it so
        """A broker whose log nobody reads any more, or whose log's disk is full, goes on."""


def _thread_failed(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is SystemExit:
        return
    name = args.thread.name if args.thread else "?"
    told = (args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback)
    logging.getLogger("smile").error("a thread has ended", exc_info=told, extra={"thread_name": name})


class Text(logging.Formatter):
    """`2026-01-31T12:00:00.123Z info smile.broker: the broker is ready views=3`"""

    def format(self, record: logging.LogRecord) -> str:
        parts = [_plain(record.getMessage()), *(f"{name}={_plain(v)}" for name, v in _fields(record).items())]
        if trouble := _trouble(self, record):
            parts.append(_plain(trouble))
        return f"{_at(record)} {record.levelname.lower()} {record.name}: {' '.join(parts)}"


class Json(logging.Formatter):
    """`{"at":"2026-01-31T12:00:00.123Z","level":"info","logger":"smile.broker","message":"the broker is ready",…}`"""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": _at(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _safe(record.getMessage()),
        }
        line |= {name: value for name, value in _fields(record).items() if name not in line}
        if trouble := _trouble(self, record):
            line["traceback"] = _safe(trouble)
        return msgspec.json.encode(line).decode()


def _at(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z"


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """What `extra=` gave, in values that any reader of JSON takes."""
    return {name: _value(value) for name, value in vars(record).items() if name not in _NO_FIELDS}


def _value(value: object) -> object:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        # Readers of JSON lose digits beyond 2^53, which ticks have.
        return value if abs(value) <= 2**53 else str(value)
    if isinstance(value, Mapping):
        return {_safe(str(k)): _value(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_value(v) for v in value]
    return _safe(str(value))


def _safe(text: str) -> str:
    # Redacted before it is cut, so that no half of a secret is left over; and not longer than can be redacted soon.
    text = redacted(text[: 2 * limits.log_value_chars_max]).encode(errors="replace").decode()
    return text if len(text) <= limits.log_value_chars_max else text[: limits.log_value_chars_max] + "…"


def _plain(value: object) -> str:
    """On one line, whatever a client sent."""
    text = _safe(value if isinstance(value, str) else msgspec.json.encode(value).decode())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _trouble(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info else ""
