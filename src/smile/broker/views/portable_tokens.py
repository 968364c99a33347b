"""What makes a resume token valid at another broker: the same view of the same streams with the same history."""

import hashlib
from dataclasses import replace

from smile.algebra import mmpl
from smile.algebra.dependencies import subprogram
from smile.algebra.printer import print_program
from smile.broker.network.descriptions import ImportRecords


def portable_digest(program: mmpl.Program, view: str, records: ImportRecords, log_id: str) -> str:
    """Equal at all brokers that compute this view from the same streams: at their home, or from an import of the whole
    stream under its own name. Empty if it is computed from anything else: its tokens are then valid here only."""
    part = subprogram(program, view)
    streams, histories = list(part.streams), [hashlib.sha256(repr([log_id]).encode()).hexdigest()[:16]]
    if not part.streams:
        histories.clear()
    for import_ in part.imports:
        if import_.stream is None or import_.condition is not None or import_.input_name != import_.relation:
            return ""
        assert import_.definition is not None
        history = records.history(import_)
        if not history:
            return ""
        streams += [s for s in import_.definition.input_streams if s.name == import_.relation]
        histories.append(history)
    # How the stream gets its ticks matters only at its home.
    alike = sorted((replace(stream, publisher_timed=False) for stream in streams), key=lambda stream: stream.name)
    views = tuple(sorted(part.views, key=lambda definition: definition.name))
    text = print_program(mmpl.Program(tuple(alike), views, (view,)))
    return hashlib.sha256(repr((text, sorted(set(histories)))).encode()).hexdigest()


def base_streams(program: mmpl.Program, view: str) -> frozenset[str]:
    """The streams that a view is computed from, as the log names them."""
    part = subprogram(program, view)
    return frozenset(stream.name for stream in (*part.streams, *(s for i in part.imports for s in i.log_streams)))
