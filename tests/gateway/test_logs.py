"""What the broker writes of itself: one line a record, readable by programs, with no secret in it."""

import io
import json
import logging
import random
import re
import string
import threading
from collections.abc import Iterator

import pytest

from smile import limits
from smile.gateway.logs import REDACTED, redact, set_up_logging
from tests.processes import WAIT_S, restored_logging
from tests.repeatable import scaled

TOKEN = "smile_" + "aB3-_xYz" * 5 + "abc"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What goes to the log."""
    with restored_logging():
        yield io.StringIO()


def lines(written: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in written.getvalue().splitlines()]


def test_json(written: io.StringIO) -> None:
    set_up_logging("json", "info", written)
    fields = {"views": 3, "tick": 2**60, "share": 0.5, "on": True, "none": None, "names": ("a", "b"), "of": {"x": [1]}}
    logging.getLogger("smile.broker").info("ready in %d ms", 17, extra=fields)
    (line,) = lines(written)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(line.pop("at")))
    assert line == {
        "level": "info",
        "logger": "smile.broker",
        "message": "ready in 17 ms",
        "views": 3,
        "tick": str(2**60),
        "share": 0.5,
        "on": True,
        "none": None,
        "names": ["a", "b"],
        "of": {"x": [1]},
    }


def test_text(written: io.StringIO) -> None:
    set_up_logging("text", "info", written)
    logging.getLogger("smile.broker").warning("slow", extra={"view": "Matchable", "rows": [1, 2]})
    at, rest = written.getvalue().split(" ", 1)
    assert at.endswith("Z")
    assert rest == "warning smile.broker: slow view=Matchable rows=[1,2]\n"


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_traceback_is_on_one_line_too(written: io.StringIO, form: str) -> None:
    set_up_logging(form, "info", written)
    try:
        raise ValueError(f"Bearer {TOKEN}")
    except ValueError:
        logging.getLogger("smile.gateway").exception("a fault")
    (line,) = written.getvalue().splitlines()
    assert "ValueError" in line
    assert "test_logs.py" in line
    assert TOKEN not in line


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_only_what_is_asked_for_is_written(written: io.StringIO, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What libraries say below a warning is not written: it has headers in it."""
    for name in ("websockets", "websockets.server", "uvicorn", "uvicorn.error"):
        # A broker that was served in this process has silenced them.
        monkeypatch.setattr(logging.getLogger(name), "level", logging.NOTSET)
        logging.getLogger(name)._cache.clear()  # type: ignore[attr-defined]  # of levels that are on
    set_up_logging("json", level, written)
    levels = ["debug", "info", "warning", "error"]
    for name in ("smile.broker", "websockets.server", "uvicorn.error"):
        for number in levels:
            getattr(logging.getLogger(name), number)("said")
    got = [(line["logger"], line["level"]) for line in lines(written)]
    wanted = levels[levels.index(level) :]
    assert [severity for name, severity in got if name == "smile.broker"] == wanted
    assert [severity for name, severity in got if name != "smile.broker"] == [
        n for n in wanted if n in ("warning", "error")
    ] * 2


def test_a_thread_that_fails_is_logged(written: io.StringIO) -> None:
    set_up_logging("json", "info", written)
    thread = threading.Thread(target=lambda: 1 // 0, name="publisher")
    thread.start()
    thread.join(WAIT_S)
    (line,) = lines(written)
    assert (line["level"], line["message"], line["thread_name"]) == (
        "error",
        "a thread has ended with an error",
        "publisher",
    )
    assert "ZeroDivisionError" in str(line["traceback"])


def test_a_log_that_cannot_be_written_stops_nothing(written: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("json", "info", written)
    written.close()
    logging.getLogger("smile").error("unheard")
    assert capsys.readouterr() == ("", "")
    # The fixture asks for what was written.


HOSTILE = ["\n", "\r\n", "\x1b[31m", "\0", "\u2028", '"', "\\", "\ud800", "{}", "%s", "é", "≥"]


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("seed", range(scaled(10)))
def test_nobody_writes_lines_of_their_own(written: io.StringIO, form: str, seed: int) -> None:
    """Whatever a client sends is on the line it belongs to, and no terminal obeys it."""
    chance = random.Random(seed)
    set_up_logging(form, "info", written)
    for _ in range(20):
        sent = "".join(chance.choice(HOSTILE) for _ in range(8))
        logging.getLogger("smile.gateway").info("refused %s", sent, extra={"path": sent, "of": {sent: [sent]}})
    shown = written.getvalue().split("\n")
    assert shown.pop() == ""
    assert len(shown) == 20
    assert all(line.isprintable() for line in shown) or form == "json"
    assert not any(set(line) & set("\r\0\x1b") for line in shown)


def test_long_values_are_cut(written: io.StringIO) -> None:
    set_up_logging("json", "info", written)
    logging.getLogger("smile").info("x" * 10**6, extra={"a": "y" * 10**6})
    assert len(written.getvalue()) < 20_000


WAYS = [
    "Authorization: Bearer {}",
    "authorization: bearer {}",
    "{{'authorization': 'Bearer {}'}}",
    "Sec-WebSocket-Protocol: smile.token.{}, other",
    "GET /views/Matchable?token={}&where.issue=IBM HTTP/1.1",
    "GET /views/Matchable?access_token={}",
    "/x%3Ftoken%3D{}",
    "http://127.0.0.1/?token={}",
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(scaled(5)))
def test_secrets_are_hidden(way: str, seed: int) -> None:
    """Tokens of SMILE's anywhere, and whatever else was sent in a token's place."""
    chance = random.Random(seed)
    alphabet = string.ascii_letters + string.digits + "-_"
    foreign = "".join(chance.choice(alphabet) for _ in range(40))
    for secret in (foreign, "smile_" + foreign):
        shown = redact(way.format(secret))
        assert foreign not in shown
        assert REDACTED in shown
    assert foreign not in redact(f"before smile_{foreign} after")


def test_keys_are_hidden() -> None:
    key = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----"
    assert redact(f"a {key} b") == f"a {REDACTED} b"
    assert "MHc" not in redact(key[:40])


def test_other_text_is_left_as_it_is() -> None:
    for text in ("smile.broker: ready", "no token, or a wrong one", "GET /streams/BuyBids/events", "Matchable=3"):
        assert redact(text) == text


def test_a_secret_at_the_cut_is_hidden(written: io.StringIO) -> None:
    set_up_logging("json", "info", written)
    for pad in range(limits.log_value_chars_max - 60, limits.log_value_chars_max + 10):
        logging.getLogger("smile").info("%s", " " * pad + "Bearer " + TOKEN + " " * 9000)
    for pad in range(2 * limits.log_value_chars_max - 60, 2 * limits.log_value_chars_max + 10):
        logging.getLogger("smile").info("%s", "smile_secret " + " " * pad + TOKEN)
    assert TOKEN[6:12] not in written.getvalue()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_text_is_for_terminals_and_json_for_programs(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    with restored_logging():
        set_up_logging("auto", "info", stream)
        logging.getLogger("smile.x").info("hello")
    assert stream.getvalue().startswith("{") is not is_terminal
