"""What a subscriber asks for when it subscribes durably."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from smile import limits
from smile.broker.subscriptions.position_store import SubscriptionKey
from smile.errors import error

Start = Literal["all", "kept", "new"]
"""Where a new subscription to events begins: with the first event, with the oldest that the log has, or with events
that are logged from now on."""
Scope = Literal["local", "global"]
"""The events that this broker's program has, or those of all brokers that publish a stream of the name."""
SCOPES: Final[tuple[Scope, ...]] = ("local", "global")
STARTS: Final[tuple[Start, ...]] = ("all", "kept", "new")


@dataclass(frozen=True)
class DurableRequest:
    """`where` are the conditions, as the subscriber has sent them. `filter` is a predicate in SmileSQL; empty if there
    is none."""

    key: SubscriptionKey
    relation: str
    where: Mapping[str, Any]
    resume: str | None = None
    start: Start = "all"
    window: int = limits.durable_window_events
    scope: Scope = "local"
    filter: str = ""

    @property
    def conditions(self) -> str:
        return json.dumps(dict(self.where), sort_keys=True, ensure_ascii=False)


def check_start(text: str) -> Start:
    for start in STARTS:
        if text == start:
            return start
    raise error("E093", f"there is no start {text[:100]!r}", hint=f"There are {', '.join(STARTS)}.")


def check_scope(text: str) -> Scope:
    for scope in SCOPES:
        if text == scope:
            return scope
    raise error("E093", f"there is no scope {text[:100]!r}", hint=f"There are {', '.join(SCOPES)}.")


def refuse_filter(text: str) -> None:
    """For subscriptions to rows."""
    if text:
        hint = "Give the subscription a name to receive events. For rows, define a view with the condition."
        raise error("E145", "a filter selects events, not rows of a view", hint=hint)


def check_name(name: str) -> None:
    if not re.fullmatch(r"[\w.@+-]+", name) or len(name) > limits.principal_chars_max:
        hint = "A name consists of letters, digits and . @ + - _"
        raise error("E093", f"{name[: limits.principal_chars_max]!r} is not a name of a subscription", hint=hint)
