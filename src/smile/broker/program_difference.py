"""The difference between two programs, and the generations of views that remain or must be computed.

A view is unchanged if its definition and the definitions of everything it reads are unchanged. How it is executed does
not matter.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from smile.algebra import mmpl
from smile.algebra.printer import print_program
from smile.algebra.trees import walk
from smile.engine.generation import Generation
from smile.errors import error
from smile.program import CompiledProgram


@dataclass(frozen=True)
class ProgramDifference:
    """Names of subscribed views, and of streams."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    dropped: tuple[str, ...]
    unchanged: tuple[str, ...]
    streams_added: tuple[str, ...]
    streams_dropped: tuple[str, ...]
    """Their events stay in the log."""

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.changed or self.dropped or self.streams_added or self.streams_dropped)


def subscribed_views(program: mmpl.Program) -> tuple[str, ...]:
    """The views that subscribers can receive: those in SUBSCRIBE statements, or all if there are none."""
    return tuple(dict.fromkeys(program.subscriptions)) or tuple(view.name for view in program.views)


def view_digests(program: mmpl.Program) -> dict[str, str]:
    """A digest of each subscribed view: of its definition and all definitions that it depends on."""
    return {view: _view_digest(program, view) for view in subscribed_views(program)}


def _view_digest(program: mmpl.Program, view: str) -> str:
    definitions = {v.name: v for v in program.views}
    needed, pending = set[str](), [view]
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            if name in definitions:
                pending += [node.name for node in walk(definitions[name].body) if isinstance(node, mmpl.RelationRef)]
    streams = tuple(s for s in sorted(program.streams, key=lambda s: s.name) if s.name in needed)
    views = tuple(v for v in sorted(program.views, key=lambda v: v.name) if v.name in needed)
    return hashlib.sha256(print_program(mmpl.Program(streams, views, (view,))).encode()).hexdigest()


def refuse_changed_streams(logged: Mapping[str, mmpl.StreamDef], streams: Sequence[mmpl.StreamDef]) -> None:
    """Refuses a changed definition of a stream that is in the log."""
    for stream in streams:
        if stream.name in logged and logged[stream.name] != stream:
            hint = "Define a stream with another name, and publish to it; views can read both with UNION ALL."
            raise error("E102", f"the stream {stream.name} is in the log, and its definition cannot change", hint=hint)


def compare_programs(old: CompiledProgram, new: CompiledProgram) -> ProgramDifference:
    before, after = view_digests(old.original), view_digests(new.original)
    streams_before, streams_after = ({s.name for s in program.rewritten.streams} for program in (old, new))
    return ProgramDifference(
        added=tuple(v for v in after if v not in before),
        changed=tuple(v for v in after if v in before and after[v] != before[v]),
        dropped=tuple(v for v in before if v not in after),
        unchanged=tuple(v for v in after if before.get(v) == after[v]),
        streams_added=tuple(sorted(streams_after - streams_before)),
        streams_dropped=tuple(sorted(streams_before - streams_after)),
    )


@dataclass(frozen=True)
class GenerationRecord:
    """Views that are maintained together, and their digests."""

    generation: Generation
    digests: Mapping[str, str]


def plan_generations(
    program: CompiledProgram, records: Sequence[GenerationRecord]
) -> tuple[tuple[GenerationRecord, ...], GenerationRecord | None]:
    """Returns the generations that remain for a program, and one with the views that must be computed from the log. An
    unchanged view stays in its generation."""
    digests_wanted = view_digests(program.original)
    unchanged = []
    for record in records:
        remaining = {view: digest for view, digest in record.digests.items() if digests_wanted.get(view) == digest}
        if remaining:
            names = tuple(view for view in record.generation.views if view in remaining)
            unchanged.append(
                GenerationRecord(replace(record.generation, views=names, materialized_views=names), remaining)
            )
    known_views = {view for record in unchanged for view in record.digests}
    missing = {view: digest for view, digest in digests_wanted.items() if view not in known_views}
    if not missing:
        return tuple(unchanged), None
    # The name depends on the views only, so that an interrupted change continues under the same name.
    name = hashlib.sha256(repr(sorted(missing.items())).encode()).hexdigest()[:12]
    names = tuple(missing)
    return tuple(unchanged), GenerationRecord(Generation(name, program.rewritten, names, names, names), missing)
