"""The difference between two programs, and the generations of views that remain or must be computed.

A view is unchanged if its definition and the definitions of everything it reads are unchanged. How it is executed does
not matter.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from smile.algebra import mmpl
from smile.algebra.dependencies import subprogram
from smile.algebra.printer import print_program
from smile.algebra.stream_extension import is_extension
from smile.broker.maintenance.listener import ViewPause
from smile.engine.generation import Generation
from smile.errors import error
from smile.program import CompiledProgram


@dataclass(frozen=True)
class ProgramDifference:
    """Names of subscribed views, of streams, and of imports whose definition or history is another one."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    dropped: tuple[str, ...]
    unchanged: tuple[str, ...]
    streams_added: tuple[str, ...]
    streams_dropped: tuple[str, ...]
    """Their events stay in the log."""
    imports_changed: tuple[str, ...]


def subscribed_views(program: mmpl.Program) -> tuple[str, ...]:
    """The views that subscribers can receive: those in SUBSCRIBE statements, or all if there are none."""
    return tuple(dict.fromkeys(program.subscriptions)) or tuple(view.name for view in program.views)


def view_digests(program: mmpl.Program) -> dict[str, str]:
    """A digest of each subscribed view: of its definition and all definitions that it depends on."""
    return {view: _view_digest(program, view) for view in subscribed_views(program)}


def _view_digest(program: mmpl.Program, view: str) -> str:
    needed = subprogram(program, view)
    streams, views, imports = (
        tuple(sorted(definitions, key=lambda d: d.name))
        for definitions in (needed.streams, needed.views, needed.imports)
    )
    text = print_program(mmpl.Program(streams, views, (view,), imports))  # type: ignore[arg-type]  # sorted, not mixed
    return hashlib.sha256(text.encode()).hexdigest()


def refuse_changed_streams(logged: Mapping[str, mmpl.StreamDef], streams: Sequence[mmpl.StreamDef]) -> None:
    """Refuses a changed definition of a stream that is in the log, unless it only has further columns."""
    for stream in streams:
        if stream.name in logged and not is_extension(stream, logged[stream.name]):
            hint = (
                "Columns that may be NULL can be added at the end. For another change, define a stream with another "
                "name, and publish to it; views can read both with UNION ALL."
            )
            raise error("E102", f"the stream {stream.name} is in the log, and its definition cannot change", hint=hint)


def compare_programs(old: CompiledProgram, new: CompiledProgram) -> ProgramDifference:
    before, after = view_digests(old.original), view_digests(new.original)
    editions = {import_.name: import_.edition for import_ in old.original.imports}
    streams_before, streams_after = ({s.name for s in program.rewritten.streams} for program in (old, new))
    return ProgramDifference(
        added=tuple(v for v in after if v not in before),
        changed=tuple(v for v in after if v in before and after[v] != before[v]),
        dropped=tuple(v for v in before if v not in after),
        unchanged=tuple(v for v in after if before.get(v) == after[v]),
        streams_added=tuple(sorted(streams_after - streams_before)),
        streams_dropped=tuple(sorted(streams_before - streams_after)),
        imports_changed=tuple(i.name for i in new.original.imports if editions.get(i.name, i.edition) != i.edition),
    )


@dataclass(frozen=True)
class GenerationRecord:
    """Views that are maintained together, and their digests. `pause` says why they are paused, if they are."""

    generation: Generation
    digests: Mapping[str, str]
    pause: ViewPause | None = None

    def with_views(self, generation: Generation, pause: ViewPause | None) -> "GenerationRecord | None":
        """A record of the generation with those of its views that this record has; None if it has none of them."""
        views = tuple(view for view in generation.views if view in self.digests)
        if not views:
            return None
        digests = {view: self.digests[view] for view in views}
        return GenerationRecord(replace(generation, views=views, materialized_views=views), digests, pause)


def separate_views(
    records: Sequence[GenerationRecord], name: str, separated: Generation, pause: ViewPause
) -> tuple[GenerationRecord, ...]:
    """The records after these views of the named generation were paused. It may be called again with the same
    arguments."""
    result = list[GenerationRecord]()
    for record in records:
        if record.generation.name not in (name, separated.name):
            result.append(record)
            continue
        remaining = record.generation.without_views(separated.views)
        parts = [record.with_views(remaining, record.pause)] if remaining is not None else []
        parts.append(record.with_views(separated, pause))
        result += [part for part in parts if part is not None]
    return tuple(result)


def plan_generations(
    program: CompiledProgram, records: Sequence[GenerationRecord]
) -> tuple[tuple[GenerationRecord, ...], GenerationRecord | None]:
    """Returns the generations that remain for a program, and one with the views that must be computed from the log. An
    unchanged view stays in its generation."""
    digests_wanted = view_digests(program.original)
    unchanged = []
    for record in records:
        remaining = tuple(view for view in record.generation.views if digests_wanted.get(view) == record.digests[view])
        kept = record.with_views(replace(record.generation, views=remaining), record.pause)
        if kept is not None:
            unchanged.append(kept)
    known_views = {view for record in unchanged for view in record.digests}
    missing = {view: digest for view, digest in digests_wanted.items() if view not in known_views}
    if not missing:
        return tuple(unchanged), None
    # The name depends on the views only, so that an interrupted change continues under the same name.
    name = hashlib.sha256(repr(sorted(missing.items())).encode()).hexdigest()[:12]
    names = tuple(missing)
    return tuple(unchanged), GenerationRecord(Generation(name, program.rewritten, names, names, names), missing)
