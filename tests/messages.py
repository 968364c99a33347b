"""Messages of changes in tests."""

from collections.abc import Mapping
from typing import Any

import msgspec


def key_text(message: Mapping[str, Any]) -> str:
    """Identifies the row of a message. Values of type json are compared by their text."""
    return msgspec.json.encode(message["key"], order="sorted").decode()
