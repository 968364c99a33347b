"""Publishes the batches of a source. An event that its stream does not take does not hold up the others: it is stored
as a dead letter, and its number is skipped.
"""

from typing import Final

from smile.broker.publishing.publication import ProducerSequence, Publication
from smile.broker.publishing.submission import PublishingBroker, Submission
from smile.connectors.sources.event_source import PartPosition, RefusedEvent, RefuseEvent, SourceBatch
from smile.errors import SmileError
from smile.log.storage.durable import DurableLog

PRINCIPAL: Final = "connectors"
"""The principal of everything that connectors do in the broker."""
_REFUSALS: Final = ("E072", "E073", "E074", "E075", "E077", "E078", "E079", "E080", "E081", "E082", "E110", "E182")
"""An event does not fit the columns of its stream, violates a constraint, or contradicts what is in the log."""


class SourcePublisher:
    """`source` is the name of the source."""

    def __init__(
        self,
        broker: PublishingBroker,
        log: DurableLog,
        source: str,
        stream: str,
        submission: Submission,
        refuse: RefuseEvent,
    ) -> None:
        self._broker, self._log, self._submission, self._refuse = broker, log, submission, refuse
        self._source, self._stream = source, stream
        self.events = self.repeated = self.refused = 0

    def find_position(self, part: str) -> PartPosition | None:
        producer = self._sequence(part, 0, "").producer_key
        number = self._log.last_number(producer)
        return None if number is None else PartPosition(number, self._log.producer_note(producer))

    def publish(self, batch: SourceBatch) -> None:
        """Returns when all events are in the log, or were refused and stored."""
        refused = batch.events.refuse_all(self._broker.decoder, self._stream)
        if refused is None or refused.problem.code not in _REFUSALS or len(batch.events) == 1:
            self._publish(batch, 0, len(batch.events))
        else:
            self._refuse(refused)
            self.refused += len(batch.events)

    def _publish(self, batch: SourceBatch, begin: int, end: int) -> None:
        """If an event is refused, both halves are published by themselves."""
        if begin == end:
            return
        try:
            rows = batch.events.decode(self._broker.decoder, self._stream, begin, end)
            sequence = self._sequence(batch.part, batch.first + begin, batch.note(end))
            result = self._submission.submit(Publication(self._stream, rows, sequence))
            self.events += len(result.ticks) - result.repeated
            self.repeated += result.repeated
        except SmileError as problem:
            if problem.code not in _REFUSALS:
                raise
            if end - begin > 1:
                middle = (begin + end) // 2
                self._publish(batch, begin, middle)
                self._publish(batch, middle, end)
            else:
                place, content = batch.events.describe(begin), batch.events.content(begin)
                self._refuse(RefusedEvent(place, content, batch.events.text_format, problem.diagnostics[0]))
                self.refused += 1

    def _sequence(self, part: str, first: int, note: str) -> ProducerSequence:
        return ProducerSequence(PRINCIPAL, f"{self._source}/{part}", first, note)
