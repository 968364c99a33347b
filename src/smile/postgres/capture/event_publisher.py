"""Publishes events of the database in the broker: those of one transaction, or of several, in one commit of the log.

What the broker does not take now is tried again: nothing is lost. An event that it refuses for good does not hold up
the others: it goes to the exception queue of its type, before the others of its transaction are published.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from threading import Event
from typing import Final

import pyarrow as pa

from smile import limits
from smile.broker.publishing.publication import (
    AtomicPublication,
    AtomicRefusal,
    ProducerSequence,
    Publication,
)
from smile.broker.publishing.submission import PublishingBroker, Submission
from smile.decoding.event_decoder import EventDecoder
from smile.errors import SmileError, error
from smile.postgres.capture.queued_events import QueuedEvent

PRINCIPAL: Final = "postgres"
"""The principal of everything that the service does in the broker."""

Refusal = tuple[QueuedEvent, SmileError]


class EventPublisher:
    """`producer` identifies the database. `refuse` stores events in the exception queue, and returns when that is
    committed. `report_delay` is told why the broker does not take events now, and None when it does."""

    def __init__(
        self,
        broker: PublishingBroker,
        producer: str,
        refuse: Callable[[Sequence[Refusal]], None],
        stopping: Event,
        report_delay: Callable[[SmileError | None], None] = lambda _: None,
    ) -> None:
        self._broker, self._producer, self._refuse = broker, producer, refuse
        self._submission = Submission(broker, stopping, report_delay)
        self.streams: Mapping[int, str | SmileError] = {}
        """The stream of each event type, or why it has none."""

    def publish(self, events: Sequence[QueuedEvent]) -> int:
        """Publishes the events in one commit. Returns how many were not in the log before."""
        if len(events) > limits.publication_events_max:
            parts = range(0, len(events), limits.publication_events_max)
            return sum(self.publish(events[i : i + limits.publication_events_max]) for i in parts)
        # A type may have been dropped while the transaction was open. Its events are published to nobody.
        events = [event for event in events if event.type_id in self.streams]
        refusals, has_single_events = self._refusals_by_type(events), False
        while True:
            if refusals:
                self._refuse(refusals)
                refused = {event.seq for event, _ in refusals}
                events = [event for event in events if event.seq not in refused]
            if not events:
                return 0
            groups, refusals = self._decode(events, has_single_events)
            if refusals:
                continue
            try:
                result = self._submission.submit(AtomicPublication([publication for publication, _ in groups]))
                return len(result.ticks) - result.repeated
            except AtomicRefusal as problem:
                if has_single_events:
                    refusals = [(groups[part][1][0], p) for part, p in problem.problems.items()]
                has_single_events = True
            except SmileError as problem:
                refusals = self._refusals_by_stream(groups, problem)

    def publish_changes(self, stream: str, changes: pa.RecordBatch) -> None:
        """Publishes changes of a table that are not in a queue, and have no numbers."""
        for start in range(0, changes.num_rows, limits.publication_events_max):
            self._submission.submit(Publication(stream, changes.slice(start, limits.publication_events_max)))

    def _refusals_by_type(self, events: Sequence[QueuedEvent]) -> list[Refusal]:
        streams = ((event, self.streams[event.type_id]) for event in events)
        return [(event, stream) for event, stream in streams if isinstance(stream, SmileError)]

    def _decode(
        self, events: Sequence[QueuedEvent], has_single_events: bool
    ) -> tuple[list[tuple[Publication, Sequence[QueuedEvent]]], list[Refusal]]:
        """A publication for each run of events of one stream, or for each event; and the events that do not fit."""
        decoder, groups, refusals = self._broker.decoder, list[tuple[Publication, Sequence[QueuedEvent]]](), []
        for stream, run in self._runs(events, has_single_events):
            try:
                rows = decoder.decode_json(stream, f"[{','.join(event.event for event in run)}]".encode())
                groups.append((Publication(stream, rows, self._sequence(run[0])), run))
            except SmileError as problem:
                refusals += [(run[0], problem)] if len(run) == 1 else _undecodable(decoder, stream, run)
        return groups, refusals

    def _runs(self, events: Sequence[QueuedEvent], has_single_events: bool) -> Iterator[tuple[str, list[QueuedEvent]]]:
        """Events of one stream with consecutive numbers."""

        def key(indexed: tuple[int, QueuedEvent]) -> tuple[int, int, int]:
            index, event = indexed
            offset = 0 if event.number is None else event.number - index
            return event.type_id, offset, index if has_single_events else 0

        for _, run in groupby(enumerate(events), key):
            members = [event for _, event in run]
            stream = self.streams[members[0].type_id]
            assert isinstance(stream, str)
            yield stream, members

    def _sequence(self, event: QueuedEvent) -> ProducerSequence | None:
        return None if event.number is None else ProducerSequence(PRINCIPAL, self._producer, event.number)

    def _refusals_by_stream(
        self, groups: Sequence[tuple[Publication, Sequence[QueuedEvent]]], problem: SmileError
    ) -> list[Refusal]:
        """The events of streams that take none. Raises the error if it is not about a stream."""
        if problem.diagnostics[0].code == "E096":
            hint = (
                "The database or the broker's directory was replaced by an older copy. See docs/postgres.md, Operating."
            )
            raise error("E164", f"the log and the database disagree: {problem.message}", hint=hint) from None
        problems: dict[str, SmileError] = {}
        for stream in {publication.stream for publication, _ in groups}:
            try:
                self._submission.submit(AtomicPublication([Publication(stream, [])]))
            except SmileError as refused:
                problems[stream] = refused
        if not problems:
            raise problem
        return [(e, problems[p.stream]) for p, run in groups if p.stream in problems for e in run]


def _undecodable(decoder: EventDecoder, stream: str, events: Sequence[QueuedEvent]) -> list[Refusal]:
    refusals = list[Refusal]()
    for event in events:
        try:
            decoder.decode_json(stream, event.event.encode())
        except SmileError as problem:
            refusals.append((event, problem))
    return refusals


def chunk_transactions(
    transactions: Iterator[Sequence[QueuedEvent]], events_max: int, boundaries: Sequence[int]
) -> Iterator[tuple[Sequence[QueuedEvent], int]]:
    """Transactions that are published together: up to so many events, unless one has more. `boundaries` are
    transactions after whose place something else happens: nothing after them is in one chunk with something before.
    Returns each chunk with its last transaction."""
    chunk: list[QueuedEvent] = []
    for transaction in transactions:
        xid = transaction[0].xid
        is_divided = any(chunk[-1].xid <= boundary < xid for boundary in boundaries) if chunk else False
        if chunk and (is_divided or len(chunk) + len(transaction) > events_max):
            yield chunk, chunk[-1].xid
            chunk = []
        chunk.extend(transaction)
    if chunk:
        yield chunk, chunk[-1].xid
