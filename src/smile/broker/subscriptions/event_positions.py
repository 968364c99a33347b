"""Where a durable subscription to events begins or continues, and whether the log has what follows."""

from collections.abc import Mapping

from smile.broker.network.host import ExportedRelation
from smile.broker.subscriptions.durable_request import DurableRequest
from smile.broker.subscriptions.event_subscription import Ticks, gone_error
from smile.broker.subscriptions.position_store import SubscriptionRecord
from smile.broker.subscriptions.selection import StreamSelection
from smile.broker.views.resume_token import parse_resume_token
from smile.errors import error
from smile.horizons import HORIZON_MIN
from smile.log.storage.durable import DurableLog


def find_position(
    log: DurableLog,
    request: DurableRequest,
    selection: StreamSelection,
    exported: ExportedRelation,
    identity: str,
    record: SubscriptionRecord | None,
) -> tuple[Ticks, bool]:
    """The position, and whether the subscription continues. What was acknowledged is never lost: of a token and a
    stored position, the later one counts, for each origin."""
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
        if request.start == "all" or not gone_origins(log, selection.stream, position):
            return position, True
    if request.start == "new":
        return dict(horizons), False
    return log.truncated_ticks(selection.stream) if request.start == "kept" else {}, False


def check_not_ahead(relation: str, exported: ExportedRelation, position: Ticks, horizons: Mapping[str, int]) -> None:
    """What comes from elsewhere may still be on its way here. What was logged here first cannot."""
    home = exported.home_origin
    if home is not None and position.get(home, HORIZON_MIN) > horizons.get(home, HORIZON_MIN):
        message = f"{relation} was acknowledged up to tick {position[home]}, but the log ends before it"
        raise error("E089", message, hint="The log has lost its end: restore a backup of it.")


def check_not_gone(log: DurableLog, relation: str, stream: str, position: Ticks) -> None:
    for origin, truncated_to in gone_origins(log, stream, position).items():
        raise gone_error(relation, position.get(origin, HORIZON_MIN), truncated_to)


def gone_origins(log: DurableLog, stream: str, position: Ticks) -> dict[str, int]:
    """For each origin of which events after the position were removed, up to which tick."""
    truncated = log.truncated_ticks(stream)
    return {o: tick for o, tick in truncated.items() if position.get(o, HORIZON_MIN) < tick}
