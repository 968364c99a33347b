"""`smile explain --finality`: why a row is not final after recorded events."""

from itertools import chain
from typing import Any

import msgspec
import numpy as np

from smile.cli.replay.recording import open_recording
from smile.cli.replay.replay import BATCH_DEFAULT
from smile.client.ticks import tick_text
from smile.encoding.finality import finality_json
from smile.encoding.json_changes import json_changes
from smile.engine.local import LocalEngine
from smile.errors import error
from smile.horizons import is_clock_tick
from smile.kernels.compile import compile_graph
from smile.knowledge.finality import FinalityContext, input_streams
from smile.log.input_batch import InputBatch
from smile.program import CompiledProgram


def explain_finality(compiled: CompiledProgram, view: str, key: str, events: str, form: str) -> str:
    """Why the row of the view is not final, as text or JSON. E190 if the view shows no such row."""
    kernels = compile_graph(compiled.graph.for_views([view]), compiled.rewritten.log_streams)
    engine = LocalEngine(kernels.with_materialized_views([view]))
    with open_recording(compiled, events, BATCH_DEFAULT, False, None) as recording:
        # An empty batch comes first: views may have rows before any event.
        for batch in chain([InputBatch({}, {})], recording.batches()):
            engine.advance(batch)
    source, rows, horizons = engine.kernels.inputs[view], engine.snapshot(view), engine.state.horizons
    wanted = _parse_key(key, source.type.heading.key)
    keys = [message["key"] for message in json_changes(source, rows, horizons)]
    found = [i for i, shown in enumerate(keys) if {c: _key_text(v) for c, v in shown.items()} == wanted]
    if not found:
        some = ", ".join(msgspec.json.encode(shown).decode() for shown in keys[:3])
        hint = f"It shows {len(keys):,} rows, such as {some}." if keys else "It shows no rows."
        raise error("E190", f"{view} shows no row with the key {key}", hint=hint)
    context = FinalityContext(input_streams(compiled.rewritten), horizons)
    answer = finality_json(source, rows.take(np.array(found[:1])), context)
    return msgspec.json.format(msgspec.json.encode(answer)).decode() if form == "json" else _text(answer)


def _key_text(value: Any) -> str:
    return str(msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value)


def _parse_key(text: str, columns: tuple[str, ...]) -> dict[str, str]:
    """A JSON object, or the value of the only column of the key."""
    try:
        parsed = msgspec.json.decode(text)
    except msgspec.DecodeError:
        parsed = text
    if not isinstance(parsed, dict):
        if len(columns) != 1:
            hint = f"Write an object with {', '.join(columns)}." if columns else "Write {}: there is only one row."
            raise error("E190", f"{text} is not a key of this view", hint=hint)
        parsed = {columns[0]: text if isinstance(parsed, str) and not text.startswith('"') else parsed}
    return {str(name): str(value) for name, value in parsed.items()}


def _text(answer: dict[str, Any]) -> str:
    key = ", ".join(f"{name} {value}" for name, value in answer["key"].items()) or "the only row"
    lines = [f"{answer['view']}, {key}: {'final' if answer['final'] else 'not final'}"]
    waits, at = answer["waits_for"], answer["earliest"]
    if not waits:
        lines.append(f"  {answer['text']}")
    for column, cell in answer["cells"].items():
        (kind, value), *_ = cell["knowledge"].items()
        known = f"{kind.replace('_', ' ')} {value}" if kind != "unknown" else "unknown"
        lines.append(f"  {column}: {known}" + (", open" if cell["waits_for"] else ""))
    if waits:
        lines.append("  waits for")
        lines += [f"    {wait['stream']}: {_sentence(wait['parts'])}" for wait in waits]
        earliest = "never by time alone" if at is None else f"at {_time(at)}, if nothing decides it earlier"
        lines.append(f"  final {earliest}")
    return "\n".join(lines)


def _sentence(parts: list[str | dict[str, Any]]) -> str:
    return "".join(part if isinstance(part, str) else _time(part["tick"]) for part in parts)


def _time(tick: int | str) -> str:
    """The local time, as everywhere in the command."""
    return tick_text(int(tick)) if is_clock_tick(int(tick)) else f"tick {tick}"
