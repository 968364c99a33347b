"""Where a durable subscription to events begins or continues, and whether the log has what follows."""

from collections.abc import Mapping

from smile.broker.network.host import ExportedRelation
from smile.broker.subscriptions.durable_request import DurableRequest
from smile.broker.subscriptions.event_filter import EventFilter
from smile.broker.subscriptions.event_subscription import Ticks, gone_error
from smile.broker.subscriptions.global_stream import GlobalStream
from smile.broker.subscriptions.position_store import SubscriptionRecord
from smile.broker.subscriptions.selection import StreamSelection
from smile.broker.subscriptions.table_readers import unknown_contents_error
from smile.broker.views.resume_token import parse_resume_token
from smile.errors import error
from smile.horizons import END, HORIZON_MIN
from smile.log.storage.durable import DurableLog


def find_position(
    log: DurableLog,
    request: DurableRequest,
    selection: StreamSelection,
    exported: ExportedRelation,
    identity: str,
    record: SubscriptionRecord | None,
    known_from: int = HORIZON_MIN,
) -> tuple[Ticks, bool]:
    """The position, and whether the subscription continues. What was acknowledged is never lost: of a token and a
    stored position, the later one counts, for each origin. `known_from` is the tick from which on the tables of the
    filter are known."""
    if record is not None and record.history != exported.history:
        message = f"{request.relation} has another history than when {request.key.name} was here last"
        hint = f"A log was replaced. To begin anew, drop it: smile subscriptions --drop {request.key.name}."
        raise error("E141", message, hint=hint)
    stored = None if record is None else record.ticks
    token = None
    if request.resume is not None:
        token_identity, token = parse_resume_token(request.resume)
        if token_identity != identity:
            message = f"this is not a token of events of {request.relation}"
            hint = "It is of another relation, another condition, or another history. Subscribe without it."
            raise error("E094", message, hint=hint)
    horizons = log.stream_horizons(selection.stream)
    check_not_ahead(request.relation, exported, {**(stored or {}), **(token or {})}, horizons)
    if stored is not None or token is not None:
        position = dict(stored or {})
        for origin, tick in (token or {}).items():
            position[origin] = max(tick, position.get(origin, HORIZON_MIN))
        is_gone = gone_origins(log, selection.stream, position) or _is_before(position, horizons, known_from)
        if request.start == "all" or not is_gone:
            return position, True
    if request.start == "new":
        return dict(horizons), False
    if request.start == "all":
        return {}, False
    removed_to = log.truncated_ticks(selection.stream)
    origins = {**removed_to, **horizons} if known_from > HORIZON_MIN else removed_to
    return {origin: max(removed_to.get(origin, HORIZON_MIN), known_from) for origin in origins}, False


def find_global_position(
    log: DurableLog,
    request: DurableRequest,
    found: GlobalStream,
    identity: str,
    record: SubscriptionRecord | None,
) -> tuple[Ticks, bool]:
    """The position of a global subscription, and whether it continues. What a producer has removed from its log before
    the subscription began is not part of it."""
    position = dict({} if record is None else record.ticks)
    if request.resume is not None:
        token_identity, token = parse_resume_token(request.resume)
        if token_identity != identity:
            hint = "It is of another stream, or another condition. Subscribe without it."
            raise error("E094", f"this is not a token of all events of {request.relation}", hint=hint)
        position.update({o: max(tick, position.get(o, HORIZON_MIN)) for o, tick in token.items()})
    is_known = record is not None or request.resume is not None
    for producer in found.find_producers():
        if request.start == "new" and not is_known:
            ticks = log.stream_horizons(producer.logged)
        else:
            ticks = log.truncated_ticks(producer.logged)
        for origin, tick in ticks.items():
            key = producer.position_key(origin)
            if key in position and position[key] < tick and request.start == "all":
                raise gone_error(request.relation, position[key], tick)
            position[key] = max(tick, position.get(key, HORIZON_MIN))
    return position, is_known


def check_not_ahead(relation: str, exported: ExportedRelation, position: Ticks, horizons: Mapping[str, int]) -> None:
    """What comes from elsewhere may still be on its way here, such as that this broker was fenced. What was logged here
    first cannot."""
    home = exported.home_origin
    if home is not None and horizons.get(home, HORIZON_MIN) < position.get(home, HORIZON_MIN) < END:
        message = f"{relation} was acknowledged up to tick {position[home]}, but the log ends before it"
        raise error("E089", message, hint="The log has lost its end: restore a backup of it.")


def check_contents_known(event_filter: EventFilter, known_from: int, position: Ticks, horizons: Ticks) -> None:
    """Raises E146 if the tables of a filter are known only from a later tick on."""
    if _is_before(position, horizons, known_from):
        raise unknown_contents_error(", ".join(event_filter.tables), known_from)


def _is_before(position: Ticks, horizons: Ticks, tick: int) -> bool:
    """Whether events up to the tick may follow the position."""
    return any(position.get(origin, HORIZON_MIN) < min(tick, horizon) for origin, horizon in horizons.items())


def check_not_gone(log: DurableLog, relation: str, stream: str, position: Ticks) -> None:
    for origin, truncated_to in gone_origins(log, stream, position).items():
        raise gone_error(relation, position.get(origin, HORIZON_MIN), truncated_to)


def gone_origins(log: DurableLog, stream: str, position: Ticks) -> dict[str, int]:
    """For each origin of which events after the position were removed, up to which tick."""
    truncated = log.truncated_ticks(stream)
    return {o: tick for o, tick in truncated.items() if position.get(o, HORIZON_MIN) < tick}
