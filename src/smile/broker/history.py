"""Which part of the log an ad-hoc query needs, and whether the log has it: there is no answer from a part of that.

A query needs everything of the streams that it reads, unless it says itself from which tick on: every use of a stream
is restricted to ticks above a constant. As of a tick, it needs what is at or below it, and all of that must have come.
"""

from collections.abc import Mapping

from smile.algebra import mmpl, trees
from smile.algebra.types import TIME
from smile.errors import error
from smile.horizons import HORIZON_MIN
from smile.log.membership import HOME_ORIGIN
from smile.log.storage.durable import DurableLog
from smile.log.storage.past_log import PastLog


def open_past(
    log: DurableLog, program: mmpl.Program, view: str, streams: tuple[str, ...], as_of: int | None
) -> PastLog:
    """What a view of the program needs of the log. `streams` are those of the log that it reads. E197 if something of
    it was removed, E205 if it has not all come yet."""
    if as_of is not None:
        _refuse_unknown(log, program, streams, as_of)
    needed, above = ticks_needed(program, view), dict[str, Mapping[str, int]]()
    for stream, needed_above in needed.items():
        truncated = log.truncated_ticks(stream) if stream in streams else {}
        if not truncated:
            continue
        begin = max(truncated.values())
        if needed_above < begin:
            hint = f"Ask for what follows: restrict its tick, such as WHERE t > {begin}."
            message = f"the history of {stream} begins above tick {begin}, and the query needs what was before"
            raise error("E197", message, hint=hint)
        above[stream] = truncated
    return PastLog(log, above, as_of)


def ticks_needed(program: mmpl.Program, view: str) -> dict[str, int]:
    """For each relation that a view reads, directly or by other views, a tick: events at or below it are not needed.
    HORIZON_MIN if all of them are."""
    bodies = {v.name: v.body for v in program.all_views}
    ticks = {stream.name: stream.tick for stream in program.input_streams}
    needed: dict[str, int] = {}
    seen, pending = set[str](), [view]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        stack = [(bodies[name], dict[str, int]())] if name in bodies else []
        while stack:
            rel, above = stack.pop()
            if isinstance(rel, mmpl.RelationRef):
                if rel.name in bodies:
                    pending.append(rel.name)
                else:
                    tick = above.get(ticks.get(rel.name, ""), HORIZON_MIN)
                    needed[rel.name] = min(needed.get(rel.name, tick), tick)
            elif isinstance(rel, mmpl.Restrict):
                bounds = _lower_bounds(rel.predicate)
                both = {column: max(above.get(column, tick), tick) for column, tick in bounds.items()}
                stack.append((rel.input, {**above, **both}))
            else:
                stack += [(input_, {}) for input_ in trees.inputs_of(rel)]
    return needed


def _lower_bounds(predicate: mmpl.Expr) -> dict[str, int]:
    """For each column that the predicate compares with a constant time, a tick that the column is above."""
    bounds: dict[str, int] = {}
    for conjunct in trees.conjuncts(predicate):
        match conjunct:
            case mmpl.Call(
                function=">" | ">=" | "=" as operator,
                args=(mmpl.ColumnRef(name=column), mmpl.Constant(value=int(tick), type=data_type)),
            ) if data_type == TIME:
                above = tick if operator == ">" else tick - 1
                bounds[column] = max(bounds.get(column, above), above)
    return bounds


def _refuse_unknown(log: DurableLog, program: mmpl.Program, streams: tuple[str, ...], as_of: int) -> None:
    inputs = {stream.name: stream for stream in program.input_streams}
    assembled = {i.stream.name for i in program.imports if i.is_global and i.stream is not None}
    for stream in streams:
        if stream not in inputs:
            hint = "Ask the broker that computes it, or about its rows as they are now."
            raise error("E205", "an imported view is known only as it is now", hint=hint)
        horizons = log.stream_horizons(stream)
        # Who else may publish a global stream is open: it is known as far as those are who are registered.
        known = [tick for origin, tick in horizons.items() if not (stream in assembled and origin == HOME_ORIGIN)]
        reached = min(known, default=HORIZON_MIN)
        if reached < as_of:
            hint = "Ask again when it is, or as of an earlier tick."
            raise error("E205", f"{stream} is known up to tick {reached} only, not up to {as_of}", hint=hint)
