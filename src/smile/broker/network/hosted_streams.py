"""The streams with many origins that a broker publishes."""

from collections.abc import Callable

from smile.algebra import mmpl
from smile.analysis.export_description import definition_digest, export_definition
from smile.broker.network.exported_relations import join_histories
from smile.broker.network.hosted_stream import HostedStream, found_stream
from smile.broker.network.network import Network
from smile.broker.publishing.publisher import Publisher
from smile.broker.running_program import RunningProgram
from smile.log.storage.durable import DurableLog


class HostedStreams:
    """`broker` is the name of this broker. `is_read` says whether a view, a subscription or a neighbour reads one."""

    def __init__(
        self,
        broker: str,
        running: RunningProgram,
        log: DurableLog,
        network: Network,
        publisher: Publisher,
        is_read: Callable[[str], bool],
    ) -> None:
        self._broker, self._running, self._log = broker, running, log
        self._network, self._publisher, self._is_read = network, publisher, is_read

    def set_program(self) -> None:
        """Founds the new streams, and passes all to the network."""
        found_streams(self._broker, self._running, self._log)
        streams = self._running.program.streams
        self._network.set_hosted([self._find(stream) for stream in streams if stream.many_origins])

    def _find(self, stream: mmpl.StreamDef) -> HostedStream:
        present, log_id = self._network.hosted_streams.get(stream.name), self._running.metadata.log_id
        if present is not None and present.stream == stream:
            return present
        return HostedStream(
            stream,
            definition_digest(export_definition(self._running.program, stream.name)),
            self._log,
            self._broker,
            log_id,
            lambda: self._publisher.own_horizon(stream.name),
            lambda: self._is_read(stream.name),
            lambda: self._network.membership_changed(stream.name),
        )


def found_streams(broker: str, running: RunningProgram, log: DurableLog) -> None:
    """The broker becomes the first origin of new streams with many origins that have their home here."""
    log_id = running.metadata.log_id
    for stream in running.program.streams:
        if stream.many_origins:
            found_stream(stream, log, broker, log_id, join_histories({log_id}))
