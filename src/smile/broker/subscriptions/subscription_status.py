"""The status of a durable subscription, as `smile subscriptions` and `/subscriptions` show it."""

import json
from collections.abc import Mapping
from typing import Any

from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.broker.subscriptions.event_positions import gone_origins
from smile.broker.subscriptions.event_subscription import event_identity
from smile.broker.subscriptions.position_store import SubscriptionRecord
from smile.broker.subscriptions.selection import StreamSelection
from smile.broker.views.condition import parse_condition
from smile.broker.views.resume_token import resume_token
from smile.horizons import END, HORIZON_MIN
from smile.log.storage.durable import DurableLog


def describe_subscription(record: SubscriptionRecord, is_connected: bool, now_us: int) -> dict[str, Any]:
    """What is known of every subscription."""
    return {
        "principal": record.key.principal,
        "name": record.key.name,
        "relation": record.relation,
        "where": json.loads(record.conditions),
        "delivers": "events" if record.stream else "rows",
        "connected": is_connected,
        "seen_s": 0.0 if is_connected else round((now_us - record.seen_us) / 1e6, 3),
        "resume": record.resume or None,
    }


def describe_position(
    record: SubscriptionRecord, selection: StreamSelection, log: DurableLog, horizons: Mapping[str, int]
) -> dict[str, Any]:
    """What is known besides of a subscription to events. `horizons` are those of its stream in the log."""
    position = dict(record.ticks)
    condition = parse_condition(selection.source, json.loads(record.conditions))
    behind = [horizon - position.get(o, HORIZON_MIN) for o, horizon in horizons.items() if horizon < END]
    has_lag = selection.follows_clock and all(origin in position for origin in horizons)
    return {
        "resume": resume_token(event_identity(record.history, selection, condition), position),
        "position": position,
        "lag_s": round(max(0, *behind, 0) / TICKS_PER_MICROSECOND / 1e6, 3) if has_lag else None,
        "waiting_events": sum(log.count_rows(record.stream, o, position.get(o, HORIZON_MIN)) for o in horizons),
        "gone": bool(gone_origins(log, record.stream, position)),
    }
