"""The status of a durable subscription, as `smile subscriptions` and `/subscriptions` show it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.broker.subscriptions.event_positions import gone_origins
from smile.broker.subscriptions.global_stream import ProducerStream, stored_filter
from smile.broker.subscriptions.position_store import SubscriptionRecord
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
        "filter": record.filter or None,
        "delivers": "events" if record.stream else "rows",
        "scope": "local" if stored_filter(record.stream) is None else "global",
        "connected": is_connected,
        "seen_s": 0.0 if is_connected else round((now_us - record.seen_us) / 1e6, 3),
        "resume": record.resume or None,
    }


def describe_global(record: SubscriptionRecord, producers: Sequence[ProducerStream], log: DurableLog) -> dict[str, Any]:
    """What is known besides of a global subscription. Its position is by history and origin."""
    position = dict(record.ticks)
    waiting = sum(
        log.count_rows(producer.logged, origin, position.get(producer.position_key(origin), HORIZON_MIN))
        for producer in producers
        for origin in log.stream_horizons(producer.logged)
    )
    return {"position": position, "waiting_events": waiting, "producers": len(producers), "gone": False}


def describe_position(
    record: SubscriptionRecord,
    identity: str,
    follows_clock: bool,
    log: DurableLog,
    horizons: Mapping[str, int],
) -> dict[str, Any]:
    """What is known besides of a subscription to events, whose tokens have this identity. `horizons` are those of its
    stream in the log, and `follows_clock` says whether its ticks are times."""
    position = dict(record.ticks)
    behind = [horizon - position.get(o, HORIZON_MIN) for o, horizon in horizons.items() if horizon < END]
    has_lag = follows_clock and all(origin in position for origin in horizons)
    return {
        "resume": resume_token(identity, position),
        "position": position,
        "lag_s": round(max(0, *behind, 0) / TICKS_PER_MICROSECOND / 1e6, 3) if has_lag else None,
        "waiting_events": sum(log.count_rows(record.stream, o, position.get(o, HORIZON_MIN)) for o in horizons),
        "gone": bool(gone_origins(log, record.stream, position)),
    }
