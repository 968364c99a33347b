"""The checker: finds broken promises from what clients received and from the log that is left.

Every acknowledged event is in the log once, with its tick, and the log has nothing that nobody sent. Every row that a
subscriber received evolves to the final row that follows from the log. Where its progress said that it knows
everything, it had exactly the rows that follow from the log up to there.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from random import Random

from smile.decoding.stream_schema import StreamSchema
from smile.horizons import HORIZON_MIN
from tests.engine.subscriber_knowledge import broken_by, unsafe
from tests.torture.truth import Recorded, Tables, Truth, by_reference
from tests.torture.witness import Horizons, Json, Name, Progress, Reset, Session, Table, Witness, key_of, name_of

MARKS_MAX = 150
"""Horizons at which tables are compared; if there were more, some are drawn."""
REFERENCE_MAX = 150
"""Events up to which the reference is asked too."""
SHOWN_MAX = 8
Mark = tuple[tuple[str, int], ...]


def problems(witness: Witness, recorded: Recorded, random: Random) -> list[str]:
    all_problems = [*witness.problems, *log_problems(witness, recorded)]
    all_problems += delivery_problems(witness, recorded, random)
    return all_problems


def report(problems_found: Sequence[str], repeat: str) -> str:
    shown = [text[:2000] for text in problems_found[:SHOWN_MAX]]
    more = [f"… and {len(problems_found) - SHOWN_MAX} more"] if len(problems_found) > SHOWN_MAX else []
    return "\n".join([f"{len(problems_found)} promises broken:", *shown, *more, "repeat with", repeat])


# ── the log ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def log_problems(witness: Witness, recorded: Recorded) -> list[str]:
    problems: list[str] = []
    there: dict[Name, tuple[str, int]] = {}
    for stream, batch in recorded.events.items():
        shape = StreamSchema(next(s for s in recorded.compiled.rewritten.streams if s.name == stream))
        last = -1
        for row in batch.to_pylist():
            tick, name = row[shape.stream.tick], name_of(row)
            if tick <= last:
                problems.append(f"{stream} has tick {tick} after {last}")
            last = tick
            if name in there:
                problems.append(f"{name} is in the log twice: at {there[name]} and at {(stream, tick)}")
            there[name] = stream, tick
            sent = witness.sent.get(name)
            if sent is None:
                problems.append(f"nobody sent {row}, which {stream} has")
            elif sent != (stream, _as_sent(row, shape)):
                problems.append(f"{stream} has {row}, and {sent} was sent")
        if last > recorded.horizons[stream]:
            problems.append(f"{stream} has tick {last} above its horizon {recorded.horizons[stream]}")
    for name, place in witness.acknowledged.items():
        if there.get(name) != place:
            problems.append(f"{name} was acknowledged at {place}, and the log has it at {there.get(name)}")
    for stream, tick in {**witness.silences, **witness.heard}.items():
        if recorded.horizons[stream] < tick:
            problems.append(
                f"{stream} was told to be known up to {tick}, and the log ends at {recorded.horizons[stream]}"
            )
    return problems


def _as_sent(row: Json, shape: StreamSchema) -> Json:
    return row if shape.stream.publisher_timed else {c: v for c, v in row.items() if c != shape.stream.tick}


# ── what was told ───────────────────────────────────────────────────────────────────────────────────────────────────


def delivery_problems(witness: Witness, recorded: Recorded, random: Random) -> list[str]:
    problems = [problem for session in witness.sessions for problem in evolving(session)]
    for sessions in _by_streams(witness.sessions):
        marks, problem = ordered(sessions)
        if problem:
            return [*problems, problem]
        problems += mark_problems(sessions, marks, recorded, random)
    end = Truth(recorded).end()
    for session in witness.sessions:
        problems += false_rows(session, end)
    return problems


def _by_streams(sessions: Sequence[Session]) -> list[list[Session]]:
    """Those that received progress, by the streams that it names: progress of a view names what the view is made from."""
    groups: dict[frozenset[str], list[Session]] = {}
    for session in sessions:
        named = {frozenset(entry.horizons) for entry in session.entries if isinstance(entry, Progress)}
        for streams in named:
            groups.setdefault(streams, []).append(session)
    return list(groups.values())


def mark_problems(sessions: Sequence[Session], marks: list[Mark], recorded: Recorded, random: Random) -> Iterator[str]:
    """Compares what the sessions had at some progress that they received with the truth at these horizons."""
    chosen = drawn(sessions, marks, random)
    readers = [Reader(session) for session in sessions]
    truth = Truth(recorded)
    for mark in chosen:
        if any(tick > recorded.horizons[stream] for stream, tick in mark):
            continue  # the log does not have it: said already
        horizons = {**dict.fromkeys(recorded.events, HORIZON_MIN), **dict(mark)}
        tables = truth.at(horizons)
        if recorded.count <= REFERENCE_MAX and mark == chosen[-1]:
            yield from different("the engine", tables, by_reference(recorded, horizons))
        for reader in readers:
            yield from reader.compared(mark, tables)


def mark_of(horizons: Horizons) -> Mark:
    return tuple(sorted(horizons.items()))


def ordered(sessions: Sequence[Session]) -> tuple[list[Mark], str | None]:
    """All progress that was received by views of the same streams. Of any two, one is ahead of the other in every
    stream."""
    marks = sorted({mark_of(e.horizons) for s in sessions for e in s.entries if isinstance(e, Progress)}, key=_sum)
    for one, other in pairwise(marks):
        if len(one) != len(other) or any(a[0] != b[0] or a[1] > b[1] for a, b in zip(one, other, strict=True)):
            return marks, f"progress was told that is neither ahead nor behind: {one} and {other}"
    return marks, None


def _sum(mark: Mark) -> int:
    return sum(tick for _, tick in mark)


def drawn(sessions: Sequence[Session], marks: list[Mark], random: Random) -> list[Mark]:
    """Those that a session began or ended with, and of the others some."""
    wanted: set[Mark] = set()
    for session in sessions:
        own = [mark_of(e.horizons) for e in session.entries if isinstance(e, Progress)]
        wanted.update(own[:1], own[-1:])
    some = {*random.sample(sorted(wanted), min(len(wanted), MARKS_MAX))}
    others = [mark for mark in marks if mark not in wanted]
    some.update(random.sample(others, min(len(others), MARKS_MAX - len(some))))
    some.update(marks[-1:])
    return sorted(some, key=_sum)


def evolving(session: Session) -> Iterator[str]:
    """What a subscriber received is never withdrawn, and its progress never falls."""
    table, progress = Table(session.base), dict(session.progress or {})
    for entry in session.entries:
        if isinstance(entry, Progress):
            for row in table.vanishing():
                if row["final"] or row.get("stays"):
                    yield f"{session.who}: {row} is gone after a reset"
            for stream, tick in entry.horizons.items():
                if tick < progress.get(stream, -1):
                    yield f"{session.who}: {session.view} was known up to {progress[stream]} of {stream}, then {tick}"
            progress = dict(entry.horizons)
        before, after = table.take(entry)
        if before is not None and after is not None:
            for problem in broken_by(before, after):
                yield f"{session.who}: {problem}: {before}\n    then {after}"
        if after is not None and not is_in(session, after):
            yield f"{session.who}: {after} does not meet {session.where}"


def is_in(session: Session, message: Json) -> bool:
    values = {**message["key"], **message.get("row", {})}
    return all(values.get(column, value) == value for column, value in session.where.items())


class Reader:
    """Reads a session up to some progress that it received."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._table = Table(session.base)
        self._next = 0
        self._ends: dict[Mark, int] = {}
        for i, entry in enumerate(session.entries):
            if isinstance(entry, Progress):
                self._ends[mark_of(entry.horizons)] = i + 1

    def compared(self, mark: Mark, tables: Tables) -> Iterator[str]:
        """Compares with the truth, if the progress said that it knows all of that."""
        session = self._session
        if (end := self._ends.get(mark)) is None:
            return
        for entry in session.entries[self._next : end]:
            self._table.take(entry)
        self._next = max(self._next, end)
        wanted = {key: row for key, row in tables[session.view].items() if is_in(session, row)}
        for key in wanted.keys() | self._table.rows.keys():
            mine, true = self._table.rows.get(key), wanted.get(key)
            if _without_steps(mine) != _without_steps(true):
                yield f"{session.who} has {mine} at {dict(mark)},\n    and true is {true}"
                return


def _without_steps(message: Json | None) -> Json | None:
    return None if message is None else {k: v for k, v in message.items() if k != "steps"}


def is_same(rows: Mapping[str, Json], others: Mapping[str, Json]) -> bool:
    return rows.keys() == others.keys() and all(_without_steps(rows[k]) == _without_steps(others[k]) for k in rows)


def different(who: str, tables: Tables, others: Tables) -> Iterator[str]:
    for view, rows in tables.items():
        for key in rows.keys() | others[view].keys():
            if _without_steps(rows.get(key)) != _without_steps(others[view].get(key)):
                yield f"{view}: {who} has {rows.get(key)},\n    the reference {others[view].get(key)}"


def false_rows(session: Session, end: Tables) -> Iterator[str]:
    """What was received and is not true in the end, when everything is final."""
    true: Mapping[str, Json] = end[session.view]
    for entry in session.entries:
        if isinstance(entry, Progress | Reset):
            continue
        key = key_of(entry)
        if "deleted" in entry:
            if entry["final"] and key in true:
                yield f"{session.who}: {entry} was gone for good, and is {true[key]} in the end"
            continue
        for problem in unsafe({key: entry}, dict(true)):
            yield f"{session.who}: {problem}"
