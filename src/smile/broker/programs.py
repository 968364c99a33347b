"""From one program to the next: what of it goes on untouched, and what does not.

A view is unchanged if it and everything it is made from are written as before; how it runs is no matter.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from smile.algebra import mmpl
from smile.algebra.printer import print_program
from smile.algebra.trees import walk
from smile.engine.generation import Generation
from smile.errors import error
from smile.program import Compiled


@dataclass(frozen=True)
class Difference:
    """Of views that subscribers are told of, and of streams."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    streams_added: tuple[str, ...] = ()
    streams_dropped: tuple[str, ...] = ()
    """Their events stay in the log."""

    @property
    def is_none(self) -> bool:
        return not (self.added or self.changed or self.dropped or self.streams_added or self.streams_dropped)


def subscribed(program: mmpl.Program) -> tuple[str, ...]:
    """The views that subscribers are told of: those that the program subscribes to, or all if it names none."""
    return tuple(dict.fromkeys(program.subscriptions)) or tuple(view.name for view in program.views)


def digests(program: mmpl.Program) -> dict[str, str]:
    """Of each view that is subscribed to: what it is, and all it is made from."""
    return {view: _digest(program, view) for view in subscribed(program)}


def _digest(program: mmpl.Program, view: str) -> str:
    definitions = {v.name: v for v in program.views}
    needed, left = set[str](), [view]
    while left:
        name = left.pop()
        if name not in needed:
            needed.add(name)
            if name in definitions:
                left += [node.name for node in walk(definitions[name].body) if isinstance(node, mmpl.Ref)]
    streams = tuple(s for s in sorted(program.streams, key=lambda s: s.name) if s.name in needed)
    views = tuple(v for v in sorted(program.views, key=lambda v: v.name) if v.name in needed)
    return hashlib.sha256(print_program(mmpl.Program(streams, views, (view,))).encode()).hexdigest()


def refuse_changed(known: Mapping[str, mmpl.StreamDef], streams: Sequence[mmpl.StreamDef]) -> None:
    """A stream that has events cannot become another."""
    for stream in streams:
        if stream.name in known and known[stream.name] != stream:
            hint = "Give the stream another name, and publish to that; views may read both with UNION ALL."
            raise error("E102", f"the stream {stream.name} is in the log, and cannot become another", hint=hint)


def difference(old: Compiled, new: Compiled) -> Difference:
    before, after = digests(old.written), digests(new.written)
    streams_before, streams_after = ({s.name for s in program.rewritten.streams} for program in (old, new))
    return Difference(
        added=tuple(v for v in after if v not in before),
        changed=tuple(v for v in after if v in before and after[v] != before[v]),
        dropped=tuple(v for v in before if v not in after),
        unchanged=tuple(v for v in after if before.get(v) == after[v]),
        streams_added=tuple(sorted(streams_after - streams_before)),
        streams_dropped=tuple(sorted(streams_before - streams_after)),
    )


@dataclass(frozen=True)
class Kept:
    """Views that are kept together, and their digests."""

    generation: Generation
    digests: Mapping[str, str]


def kept_for(program: Compiled, before: Sequence[Kept]) -> tuple[tuple[Kept, ...], Kept | None]:
    """What of this is kept for a program, and what has to be begun. A view that is unchanged stays where it is."""
    wanted = digests(program.written)
    stays = []
    for one in before:
        left = {view: of for view, of in one.digests.items() if wanted.get(view) == of}
        if left:
            names = tuple(view for view in one.generation.wanted if view in left)
            stays.append(Kept(replace(one.generation, wanted=names, kept=names), left))
    known = {view for one in stays for view in one.digests}
    missing = {view: of for view, of in wanted.items() if view not in known}
    if not missing:
        return tuple(stays), None
    # A change that was cut short goes on under the same name.
    name = hashlib.sha256(repr(sorted(missing.items())).encode()).hexdigest()[:12]
    names = tuple(missing)
    return tuple(stays), Kept(Generation(name, program.rewritten, names, names, names), missing)
