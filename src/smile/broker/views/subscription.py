"""Subscriptions: each is a cursor in a channel.

Changes that a subscriber has not received are stored with the view's rows, where newer knowledge replaces older. So a
subscriber that does not read costs no more than its cursor.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from smile.broker.views.channel import Channel
from smile.broker.views.view_frame import ViewFrame
from smile.errors import SmileError, error
from smile.horizons import END, HORIZON_MIN

if TYPE_CHECKING:
    from smile.broker.views.view import View, ViewCondition

Horizons = Mapping[str, int]


@dataclass(eq=False)
class ViewSubscription:
    """`last_change` is the last change that was delivered, None before the first. Nothing is delivered before the view
    reaches `required_horizons`."""

    view: "View"
    condition: "ViewCondition"
    channel: Channel
    waker: Callable[[], None]
    last_change: int | None
    required_horizons: Horizons
    reset_change: int = 0
    """The last change before the latest reset. Rows that were hidden then are left out."""
    progress: Horizons | None = None
    """The horizons that were delivered last."""
    progress_due: float = 0.0
    """When a frame with progress only may be delivered."""
    ended: SmileError | None = None

    def take(self, rows_max: int) -> ViewFrame | None:
        """The next frame, oldest change first. None if there is nothing to deliver; then `waker` is called, from any
        thread, once there is."""
        return self.view.take(self, rows_max)

    def close(self) -> None:
        self.view.close(self)


# ── resume tokens ───────────────────────────────────────────────────────────────────────────────────────────────────


def resume_token(identity: str, horizons: Horizons) -> str:
    """A token with which a subscriber continues from these horizons."""
    payload = json.dumps(dict(sorted(horizons.items())), separators=(",", ":")).encode()
    return f"{identity}.{base64.urlsafe_b64encode(payload).decode().rstrip('=')}"


def token_identity(digest: str, columns: tuple[str, ...], values: tuple[object, ...]) -> str:
    """Identifies what a token is valid for: the view's definition and the condition."""
    return hashlib.sha256(repr((digest, columns, values)).encode()).hexdigest()[:16]


def parse_resume_token(text: str) -> tuple[str, dict[str, int]]:
    """The identity of the subscription (a digest of view and condition), and the horizon of each stream."""
    identity, separator, payload = text.partition(".")
    try:
        if not separator or len(text) > TOKEN_CHARS_MAX:
            raise ValueError
        horizons = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        if not isinstance(horizons, dict) or not all(_is_tick(tick) for tick in horizons.values()):
            raise ValueError
    except (ValueError, RecursionError, binascii.Error):
        hint = "Send the text that came as `resume`, or no token to start with all rows."
        raise error("E094", "this is not a resume token", hint=hint) from None
    return identity, horizons


def _is_tick(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and HORIZON_MIN <= value <= END


TOKEN_CHARS_MAX = 2**16
"""A token has about forty bytes for each stream."""
