"""Resume tokens: text that stands for a subscriber's progress. A subscriber that returns with it continues there."""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated

import msgspec

from smile.broker.views.condition import ViewCondition
from smile.errors import error
from smile.horizons import END, HORIZON_MIN

TOKEN_CHARS_MAX = 2**16
"""A token has about forty bytes for each stream."""


def resume_token(identity: str, horizons: Mapping[str, int]) -> str:
    """A token with which a subscriber continues from these horizons."""
    return f"{identity}.{encode_horizons(horizons)}"


def encode_horizons(horizons: Mapping[str, int]) -> str:
    """The part of a token that follows the identity and a point."""
    payload = json.dumps(dict(sorted(horizons.items())), separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(payload).decode().rstrip("=")


@lru_cache(maxsize=10_000)
def token_identity(digest: str, condition: ViewCondition) -> str:
    """Identifies what a token is valid for: the view's definition and the condition."""
    parts = (digest, condition.columns, condition.values, *(("final",) if condition.only_final else ()))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def parse_resume_token(text: str) -> tuple[str, dict[str, int]]:
    """The identity of the subscription (a digest of view and condition), and the horizon of each stream."""
    identity, separator, payload = text.partition(".")
    try:
        if not separator or len(text) > TOKEN_CHARS_MAX:
            raise ValueError
        horizons = _decode_horizons(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, binascii.Error):  # msgspec's errors are among them
        hint = "Send the text that came as `resume`, or no token to start with all rows."
        raise error("E094", "this is not a resume token", hint=hint) from None
    return identity, horizons


_decode_horizons = msgspec.json.Decoder(dict[str, Annotated[int, msgspec.Meta(ge=HORIZON_MIN, le=END)]]).decode
