"""A sink: the rows of a view are posted to a URL, each as a JSON object, one after the other.

Each row is delivered at least once; a repetition has the same identifier. What was delivered of each row is stored, so
that after a restart only what is new is posted. Headers are those of the Standard Webhooks: webhook-id,
webhook-timestamp and webhook-signature. A receiver that does not answer is tried again until it does. A row that it
refuses becomes a dead letter.
"""

import base64
import hashlib
import hmac
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx
import msgspec
from msgspec import Raw

from smile import limits
from smile.connectors.dead_letters import DeadLetters, RowDelivery
from smile.connectors.sinks.change_sink import ViewChanges
from smile.encoding.json_changes import json_changes
from smile.errors import Diagnostic, error
from smile.kernels.row_encoding import decode_rows
from smile.kernels.transform import InputRelation

TIMEOUT_S: Final = 10.0
_BUSY: Final = (408, 425, 429, 502, 503, 504)
"""The receiver takes nothing now: it says nothing of this row."""


@dataclass(frozen=True)
class WebhookAddress:
    """`log_id` identifies the log that the rows come from. Without a secret there is no signature."""

    name: str
    url: str
    log_id: str
    has_all_changes: bool = False
    secret: str = ""


class Webhook:
    """`clock` returns seconds since 1970."""

    def __init__(self, address: WebhookAddress, letters: DeadLetters, clock: Callable[[], float] = time.time) -> None:
        self._address, self._letters, self._clock = address, letters, clock
        self._client: httpx.Client | None = None
        self._attempts: dict[str, int] = {}
        """Attempts at rows that the receiver has failed to take, by identifier."""
        self._posted = self._refused = 0
        self.only_final = not address.has_all_changes

    def open(self, source: InputRelation) -> None:
        """It begins with all rows, and leaves out what was delivered."""
        self._client = httpx.Client(timeout=TIMEOUT_S, follow_redirects=False)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def status(self) -> dict[str, Any]:
        return {"posted": self._posted, "refused_rows": self._refused}

    def write(self, changes: ViewChanges) -> None:
        present = set[str]()
        for change in _changes(changes):
            row = _row_text(change)
            present.add(row)
            self._deliver_change(row, change)
        if changes.is_reset and self._address.has_all_changes:
            # Rows that were deleted while nobody listened.
            for row in sorted(self._letters.delivered_rows(self._address.name) - present):
                self._deliver_change(row, {**_parts(row), "deleted": True, "final": False})

    def _deliver_change(self, row: str, change: Mapping[str, Any]) -> None:
        is_deleted = "deleted" in change
        name, last = self._address.name, self._letters.delivered(self._address.name, row)
        content = _DELETED if is_deleted else _digest(change)
        if (last is None and is_deleted) or (last is not None and last.content == content):
            return
        body = _text(change)
        # A row that has its earlier content again is another message: the identifier depends on the one before.
        parts = (self._address.log_id, name, row, "" if last is None else last.message, content.hex())
        message = "msg_" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
        problem = self._post(message, body)
        if problem is not None:
            self._refused += 1
            self._letters.add(name, row, body, problem, row_delivery=RowDelivery(content, message))
        else:
            self._posted += 1
            if is_deleted and change["final"]:
                self._letters.forget_row(name, row)
            else:
                self._letters.record_delivery(name, row, RowDelivery(content, message))
        self._attempts.pop(message, None)

    def _post(self, identifier: str, body: str) -> Diagnostic | None:
        """None if the receiver has taken it; otherwise why it does not take this row. Raises E207 if it is to be tried
        again."""
        assert self._client is not None
        url, stamp = self._address.url, str(int(self._clock()))
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": identifier,
            "webhook-id": identifier,
            "webhook-timestamp": stamp,
        }
        if self._address.secret:
            headers["webhook-signature"] = signature(self._address.secret, identifier, stamp, body)
        try:
            answer = self._client.post(url, content=body.encode(), headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            reason = str(problem) or type(problem).__name__
            raise error("E207", f"{_shown(url)} does not answer: {reason}") from None
        if answer.is_success:
            return None
        message = f"{_shown(url)} answers {answer.status_code}"
        if answer.status_code in _BUSY:
            raise error("E207", message)
        if answer.is_server_error:
            self._attempts[identifier] = attempts = self._attempts.get(identifier, 0) + 1
            if attempts < limits.webhook_attempts_max:
                raise error("E207", message)
        excerpt = " ".join(answer.text.split())[: limits.excerpt_chars_max]
        return Diagnostic("E207", f"{message}: {excerpt}" if excerpt else message)


def signature(secret: str, identifier: str, stamp: str, body: str) -> str:
    """As the Standard Webhooks define it: HMAC with SHA-256. A secret that begins with whsec_ is in Base64."""
    key = base64.b64decode(secret.removeprefix("whsec_")) if secret.startswith("whsec_") else secret.encode()
    digest = hmac.new(key, f"{identifier}.{stamp}.{body}".encode(), hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


_DELETED: Final = b"deleted"


def _changes(changes: ViewChanges) -> Iterator[Mapping[str, Any]]:
    for frame in changes.frames:
        if frame.row_count:
            delta = decode_rows(frame.source.layout, frame.rows)
            yield from json_changes(frame.source, delta, frame.horizons, include_hidden=True)


def _row_text(change: Mapping[str, Any]) -> str:
    """Identifies a row of the view."""
    return _text({"view": change["view"], "key": change["key"]}, is_sorted=True)


def _parts(text: str) -> dict[str, Raw]:
    return msgspec.json.decode(text, type=dict[str, Raw])


def _text(message: Mapping[str, Any], is_sorted: bool = False) -> str:
    """JSON with spaces after commas and colons, as in the texts of rows that are stored."""
    return msgspec.json.format(msgspec.json.encode(message, order="sorted" if is_sorted else None), indent=0).decode()


def _digest(change: Mapping[str, Any]) -> bytes:
    """Of everything but its steps, which depend on batches."""
    change = {key: value for key, value in change.items() if key != "steps"}
    return hashlib.sha256(_text(change, is_sorted=True).encode()).digest()[:16]


def _shown(url: str) -> str:
    """Without the query, which may be a secret."""
    return url.partition("?")[0]
