"""Subscriptions: each is a cursor in a channel. What a subscriber has not been told lies with the view's rows, newer
knowledge in the place of older, so that one who does not listen costs no more than his cursor.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from smile.broker.channel import Channel
from smile.broker.view_frame import ViewFrame
from smile.errors import SmileError, error
from smile.log.input_batch import END, HORIZON_MIN

if TYPE_CHECKING:
    from smile.broker.view import View, ViewCondition

Horizons = Mapping[str, int]


@dataclass(eq=False)
class ViewSubscription:
    """`number` is the last change that it was told of; `gate` are the horizons before which it is told nothing."""

    view: "View"
    condition: "ViewCondition"
    channel: Channel
    waker: Callable[[], None]
    last_change: int | None
    required_horizons: Horizons
    reset_change: int = 0
    """Of rows that were gone when it was told all anew, nothing need be said."""
    progress: Horizons | None = None
    """As it was told last."""
    progress_due: float = 0.0
    """When it may be told of progress alone."""
    ended: SmileError | None = None

    def take(self, rows_max: int) -> ViewFrame | None:
        """What it has not been told yet, oldest change first; None if there is nothing, and then `waker` is called,
        from any thread, once there is."""
        return self.view.take(self, rows_max)

    def close(self) -> None:
        self.view.close(self)


# ── resume tokens ───────────────────────────────────────────────────────────────────────────────────────────────────


def resume_token(identity: str, horizons: Horizons) -> str:
    """The progress mark of a subscription, for whoever comes again."""
    payload = json.dumps(dict(sorted(horizons.items())), separators=(",", ":")).encode()
    return f"{identity}.{base64.urlsafe_b64encode(payload).decode().rstrip('=')}"


def token_identity(digest: str, columns: tuple[str, ...], values: tuple[object, ...]) -> str:
    """Of all that a token is good for: the view as it is defined, and the condition."""
    return hashlib.sha256(repr((digest, columns, values)).encode()).hexdigest()[:16]


def parse_resume_token(text: str) -> tuple[str, dict[str, int]]:
    """What a token says: its identity, and the horizons."""
    name, separator, payload = text.partition(".")
    try:
        if not separator or len(text) > TOKEN_CHARS_MAX:
            raise ValueError
        horizons = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        if not isinstance(horizons, dict) or not all(_is_tick(tick) for tick in horizons.values()):
            raise ValueError
    except (ValueError, RecursionError, binascii.Error):
        hint = "Give the text that came as `resume`, or none at all to begin anew."
        raise error("E094", "this is not a resume token", hint=hint) from None
    return name, horizons


def _is_tick(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and HORIZON_MIN <= value <= END


TOKEN_CHARS_MAX = 2**16
"""A progress mark has some forty bytes a stream."""
