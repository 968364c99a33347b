"""The connectors of a broker: its sources and its sinks, each with a thread of its own, and their dead letters. The
broker waits for none of them.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from smile.broker.broker import Broker
from smile.broker.dead_letters import DeadLetter
from smile.broker.health import Trouble, TroubleKind
from smile.broker.publishing.publication import ProducerSequence, Publication
from smile.broker.publishing.submission import Submission
from smile.broker.retrying_worker import RetryingWorker
from smile.connectors.dead_letters import DeadLetters
from smile.connectors.sinks.change_sink import ChangeSink
from smile.connectors.sinks.parquet_table import ParquetTable
from smile.connectors.sinks.sink_worker import SinkWorker
from smile.connectors.sinks.table_rows import TableColumns
from smile.connectors.sinks.webhook import Webhook, WebhookAddress
from smile.connectors.sources.directory import DirectorySource
from smile.connectors.sources.event_source import EventSource, RefusedEvent
from smile.connectors.sources.source_publisher import PRINCIPAL
from smile.connectors.sources.source_worker import SourceWorker
from smile.errors import Diagnostic, error
from smile.extras import libraries_of
from smile.log.clock import Clock, wall_clock
from smile.settings import SinkSettings, SourceSettings

STOP_S_MAX: Final = 5.0
TABLE_PAUSE_S: Final = 1.0
"""The least time between two writes of a table."""

_log = logging.getLogger("smile.connectors")


class ConnectorService:
    """Thread-safe."""

    name: Final = "connectors"

    def __init__(self, broker: Broker, letters_path: Path, clock: Clock = wall_clock) -> None:
        settings = broker.settings
        self._broker, self._log_id = broker, broker.log_id
        self.letters = DeadLetters(letters_path, settings.flush, clock)
        self.sources = {name: self._create_source(name, s) for name, s in settings.sources.items()}
        self.sinks = {name: self._create_sink(name, s) for name, s in settings.sinks.items()}

    def _create_source(self, name: str, settings: SourceSettings) -> SourceWorker:
        source: EventSource
        if settings.kind == "directory":
            source = DirectorySource(settings.url)
        else:
            # Another topic is another session: the subscriptions of a session remain.
            topic = hashlib.sha256(settings.topic.encode()).hexdigest()[:8]
            source = _create_mqtt_source(settings, f"smile-{self._log_id}-{name}-{topic}", self._broker.warn)
        letter_name = f"source {name}"

        def refuse(event: RefusedEvent) -> None:
            _log.error("a source has an event that is refused", extra={"source": name, "what": event.problem.message})
            self.letters.add(letter_name, event.subject, event.content, event.problem, event.text_format)

        count = partial(self.letters.count, letter_name)
        return SourceWorker(name, settings.stream, source, self._broker, refuse, count)

    def _create_sink(self, name: str, settings: SinkSettings) -> SinkWorker:
        sink: ChangeSink
        pause_s, letter_name = TABLE_PAUSE_S, f"sink {name}"
        if settings.kind == "parquet":
            sink = ParquetTable(settings.url, settings.view, TableColumns(settings.knowledge, settings.times))
        elif settings.kind == "delta":
            sink = _create_delta_table(settings)
        else:
            has_all_changes = settings.changes == "all"
            address = WebhookAddress(letter_name, settings.url, self._log_id, has_all_changes, settings.secret)
            sink, pause_s = Webhook(address, self.letters), 0.0
        count = partial(self.letters.count, letter_name)
        return SinkWorker(name, settings.view, sink, self._broker, pause_s, count)

    @property
    def _workers(self) -> Sequence[RetryingWorker]:
        return [*(source.worker for source in self.sources.values()), *(sink.worker for sink in self.sinks.values())]

    def start(self) -> None:
        for worker in self._workers:
            worker.start()

    def stop(self) -> None:
        """What was read or written in part is repeated after the next start."""
        for worker in self._workers:
            worker.stop()
        have_ended = [worker.join(STOP_S_MAX) for worker in self._workers]
        if all(have_ended):
            self.letters.close()

    # ── dead letters ────────────────────────────────────────────────────────────────────────────────────────────────

    def list_letters(self, after: int, letters_max: int) -> Sequence[DeadLetter]:
        return self.letters.list(None, after, letters_max)

    def drop_letter(self, id_: int) -> None:
        self.letters.drop(self.letters.find(id_))

    def retry_letter(self, id_: int) -> None:
        """An event is published once, however often this is called. A row is posted with what is known of it now."""
        letter = self.letters.find(id_)
        kind, _, name = letter.connector.partition(" ")
        if kind == "sink":
            self.letters.drop(letter, is_retried=True)
            if name in self.sinks:
                self.sinks[name].begin_anew()
            return
        source = self.sources.get(name)
        if source is None:
            hint = "Publish the event with `smile publish`, and drop the letter."
            raise error("E208", f"the source {name} is not in the settings any more", hint=hint)
        decoder = self._broker.decoder
        decode: Callable[[str, bytes], Any] = decoder.decode_csv if letter.format == "csv" else decoder.decode_json
        rows = decode(source.stream, letter.content)
        sequence = ProducerSequence(PRINCIPAL, f"{name}/letter {letter.id}", 0)
        Submission(self._broker, source.worker.stopping).submit(Publication(source.stream, rows, sequence))
        self.letters.drop(letter)

    # ── status ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def status(self) -> Mapping[str, Any]:
        return {
            "sources": {name: dict(source.status()) for name, source in self.sources.items()},
            "sinks": {name: dict(sink.status()) for name, sink in self.sinks.items()},
        }

    def troubles(self) -> Sequence[Trouble]:
        """None of them is severe: the broker goes on."""
        troubles = list[Trouble]()
        for kind, connectors in (("source", self.sources), ("sink", self.sinks)):
            for name, connector in connectors.items():
                problems: Mapping[str, Diagnostic] = connector.problems()
                for place, problem in problems.items():
                    subject = f"{kind} {name}{f', {place}' if place else ''}"
                    troubles.append(
                        Trouble(TroubleKind.CONNECTOR, subject, problem.code, problem.message, is_severe=False)
                    )
                if letters := connector.dead_letters:
                    message = f"it has {letters:,} dead letters: `smile dead-letters` shows them"
                    troubles.append(
                        Trouble(TroubleKind.CONNECTOR, f"{kind} {name}, dead letters", "E207", message, is_severe=False)
                    )
        return troubles


def _create_mqtt_source(settings: SourceSettings, client_id: str, warn: Callable[[str], None]) -> EventSource:
    with libraries_of("connectors"):
        from smile.connectors.sources.mqtt import MqttAddress, MqttSource  # noqa: PLC0415
    address = MqttAddress(
        settings.url,
        settings.topic,
        client_id,
        settings.username,
        settings.password,
        settings.ca,
        settings.topic_column,
    )
    return MqttSource(address, warn)


def _create_delta_table(settings: SinkSettings) -> ChangeSink:
    with libraries_of("connectors"):
        from smile.connectors.sinks.delta_table import DeltaViewTable  # noqa: PLC0415
    return DeltaViewTable(settings.url, settings.view, TableColumns(settings.knowledge, settings.times))
