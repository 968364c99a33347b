"""The streams of event types: which of them the broker's program lacks, and which types cannot have one.

A stream of the program serves a type if it has the same columns. It may have CHECKs besides.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from smile.algebra import mmpl
from smile.algebra.stream_extension import is_extension
from smile.errors import SmileError, error
from smile.postgres.catalogue import EventType


class StreamProgram(Protocol):
    """The broker, as far as its program is concerned."""

    @property
    def program(self) -> mmpl.Program: ...

    def add_streams(self, streams: list[mmpl.StreamDef], /) -> object: ...


def find_streams(program: mmpl.Program, types: Iterable[EventType]) -> dict[int, str | SmileError]:
    """The stream of each type that the program has, by the id of the type; or why the type cannot have one."""
    definitions = {d.name.casefold(): d for d in program.definitions}
    found: dict[int, str | SmileError] = {}
    for event_type in types:
        definition = definitions.get(event_type.name.casefold())
        if definition is not None:
            problem = _conflict(event_type, definition)
            found[event_type.id] = definition.name if problem is None else problem
    return found


def add_missing_streams(
    broker: StreamProgram, types: Iterable[EventType], refused: Mapping[EventType, SmileError]
) -> Mapping[int, str | SmileError]:
    """Adds the streams that the program lacks. Returns the stream of each type, or why it has none. Types that were
    refused before are not tried again."""
    all_types = list(types)
    found = find_streams(broker.program, all_types)
    found |= {t.id: refused[t] for t in all_types if t.id not in found and t in refused}
    missing = [t for t in all_types if t.id not in found]
    if not missing:
        return found
    try:
        broker.add_streams([t.stream for t in missing])
    except SmileError:
        # One of them is at fault, and the others are added.
        for event_type in missing:
            try:
                broker.add_streams([event_type.stream])
            except SmileError as problem:
                if problem.diagnostics[0].code == "E098":
                    raise
                found[event_type.id] = error(
                    "E163", f"the event type {event_type.name} cannot be a stream: {problem.message}", hint=_HINT
                )
    return {**find_streams(broker.program, missing), **found}


_HINT = "Drop the event type, and create one with another name."
_NAME_HINT = "The broker's log keeps these columns: drop the event type, and create one with another name."


def _conflict(event_type: EventType, definition: mmpl.Definition) -> SmileError | None:
    name = event_type.name
    if not isinstance(definition, mmpl.StreamDef):
        return error("E163", f"the program has a relation {name} that is not a stream of its own", hint=_HINT)
    if definition.publisher_timed:
        return error("E163", f"the program has a stream {name} whose ticks come from its publishers", hint=_HINT)
    if event_type.is_table != definition.is_table:
        kind = "is not the stream of a table" if event_type.is_table else "is the stream of a table"
        return error("E163", f"the program has a stream {name} that {kind}", hint=_HINT)
    if dict(definition.columns) != dict(event_type.columns):
        columns = ", ".join(f"{column} {data}" for column, data in definition.columns)
        hint = _NAME_HINT
        if is_extension(replace(definition, columns=event_type.columns), definition):
            # The log can only add columns to a stream.
            hint = (
                "Add the columns to the stream in the program (smile apply), and publish what was refused with "
                "smile.retry_exception. Or drop the event type, and create one with another name."
            )
        return error("E163", f"the program has a stream {name} with other columns: {columns}", hint=hint)
    return None
