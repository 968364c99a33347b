"""Metrics for Prometheus: which numbers of a status are metrics, their types and their meanings.

`prometheus_client.generate_latest` writes them; no global registry is used.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from smile import limits


class MetricDefinition(NamedTuple):
    """A metric. `path` leads to its values in the status; each `*` in it stands for the values of one label. A counter
    has the suffix `_total` in Prometheus."""

    family: type[CounterMetricFamily] | type[GaugeMetricFamily]
    name: str
    path: str
    help: str
    labels: tuple[str, ...] = ()
    divisor: int = 1

    def read(self, status: Mapping[str, Any]) -> CounterMetricFamily | GaugeMetricFamily:
        metric = self.family(self.name, self.help, labels=self.labels)
        for labels, value in _values(status, self.path.split(".")):
            metric.add_metric(labels, value / self.divisor)
        return metric


def _values(node: Any, path: Sequence[str]) -> Iterator[tuple[list[str], float]]:
    """The numbers at the path, with the keys that its `*` stand for; entries of a list have names. While Spark starts,
    its part of the status is empty."""
    if not path:
        if isinstance(node, int | float):
            yield [], float(node)
    elif path[0] == "*":
        for key, inner in node.items() if isinstance(node, Mapping) else ((entry["name"], entry) for entry in node):
            for labels, value in _values(inner, path[1:]):
                yield [str(key), *labels], value
    elif isinstance(node, Mapping) and path[0] in node:
        yield from _values(node[path[0]], path[1:])


class StatusCollector(Collector):
    """The metrics of a status, which is read for each scrape, and histograms."""

    def __init__(
        self,
        definitions: Sequence[MetricDefinition],
        read_status: Callable[[], Mapping[str, Any]],
        histograms: Sequence[Histogram] = (),
    ) -> None:
        self._definitions = definitions
        self._read_status = read_status
        self._histograms = histograms

    def collect(self) -> Iterator[Metric]:
        for histogram in self._histograms:
            yield from histogram.collect()
        status = self._read_status()
        yield from (definition.read(status) for definition in self._definitions)
        if "troubles" in status:
            yield _trouble_metric(status["troubles"])


_DELAY_BUCKETS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class DelayMeter:
    """A histogram of delays, and the last of them. Thread-safe."""

    def __init__(self, histogram: Histogram, clock: Callable[[], float] = time.monotonic) -> None:
        self.histogram, self._clock = histogram, clock
        self._recent: deque[tuple[float, float]] = deque(maxlen=limits.delays_kept)

    def observe(self, delay_s: float) -> None:
        self.histogram.observe(delay_s)
        self._recent.append((self._clock(), delay_s))

    def recent_ms(self) -> dict[str, float | None]:
        """Of the last half minute: the median, and what one in twenty exceeds."""
        since = self._clock() - _RECENT_S
        delays = sorted(delay_s for at, delay_s in list(self._recent) if at >= since)
        if not delays:
            return {"median": None, "p95": None}
        return {
            name: round(1000 * delays[int(share * (len(delays) - 1))], 3)
            for name, share in (("median", 0.5), ("p95", 0.95))
        }


_RECENT_S: Final = 30.0


class DelayHistograms:
    """Histograms of the delays that users notice. Thread-safe."""

    def __init__(self) -> None:
        publish = "Seconds from the receipt of a publication over HTTP or WebSocket to its answer."
        delivery = (
            "Seconds from the time of the newest events that a frame of changes includes to its sending, over "
            "WebSocket and as server-sent events."
        )
        self.publish, self.delivery = (
            DelayMeter(Histogram(f"smile_{name}_delay_seconds", text, buckets=_DELAY_BUCKETS, registry=None))
            for name, text in (("publish", publish), ("delivery", delivery))
        )

    @property
    def all(self) -> tuple[Histogram, ...]:
        return self.publish.histogram, self.delivery.histogram

    def recent_ms(self) -> dict[str, dict[str, float | None]]:
        return {"publish": self.publish.recent_ms(), "delivery": self.delivery.recent_ms()}


def _trouble_metric(troubles: Sequence[Mapping[str, Any]]) -> GaugeMetricFamily:
    meaning = "Since when there is a trouble, in seconds since 1970; there is no value without troubles."
    metric = GaugeMetricFamily("smile_trouble_since", meaning, labels=("kind", "subject"))
    for trouble in troubles:
        metric.add_metric([trouble["kind"], trouble["subject"]], trouble["since"])
    return metric


def _counter(name: str, path: str, meaning: str, *labels: str) -> MetricDefinition:
    return MetricDefinition(CounterMetricFamily, name, path, meaning, labels)


def _gauge(name: str, path: str, meaning: str, *labels: str, divisor: int = 1) -> MetricDefinition:
    return MetricDefinition(GaugeMetricFamily, name, path, meaning, labels, divisor)


_BATCH_PARTS: Final = "Duration of the last batch, in parts; kernels are part of the job."
_STAGE_PARTS: Final = "Duration of the slowest task of the stage in the last batch, in parts."

BROKER_METRICS: Final = (
    _gauge("smile_at", "at", "Time of the status, in seconds since 1970."),
    _gauge("smile_since", "since", "Time at which the broker started, in seconds since 1970."),
    _gauge("smile_stream_horizon", "streams.*.horizon", "Horizon of the stream.", "stream"),
    _gauge("smile_view_rows", "views.*.rows", "Rows that the view shows.", "view"),
    _counter("smile_view_changed", "views.*.changed", "Changes of rows of the view.", "view"),
    _gauge("smile_view_subscribers", "views.*.subscribers", "Subscriptions to the view.", "view"),
    _gauge("smile_view_state_bytes", "views.*.state_bytes", "Estimated size of the state of the view.", "view"),
    _gauge("smile_view_lag_seconds", "views.*.lag_s", "Age of what the view shows, in seconds.", "view"),
    _gauge("smile_view_paused_since", "views.*.paused.since", "Since when the view is paused, in seconds.", "view"),
    _gauge("smile_subscription_lag_seconds", "subscriptions.*.lag_s", "Age of what was acknowledged.", "subscription"),
    _gauge(
        "smile_subscription_waiting_events",
        "subscriptions.*.waiting_events",
        "Events that a durable subscription has not acknowledged.",
        "subscription",
    ),
    _gauge("smile_subscription_seen_seconds", "subscriptions.*.seen_s", "Time since it was connected.", "subscription"),
    _gauge(
        "smile_view_behind_seconds", "views.*.behind_s", "How far the slowest subscriber is behind the view.", "view"
    ),
    _gauge("smile_start_for_seconds", "start.for_s", "For how long the engine has been starting."),
    _gauge("smile_start_took_seconds", "start.took_s", "How long the start of the engine took."),
    _gauge("smile_start_usual_seconds", "start.usual_s", "How long a start of the engine usually takes."),
    _gauge("smile_log_bytes", "log_bytes", "Size of the log on the disk."),
    _gauge("smile_memory_bytes", "memory_bytes", "Memory that the broker's process occupies."),
    _gauge("smile_java_memory_bytes", "java_memory_bytes", "Memory that the Java process of Spark occupies."),
    _gauge("smile_disk_free_bytes", "disk_free_bytes", "Free space in the data directory."),
    _gauge("smile_view_horizon", "views.*.horizons.*", "Horizon up to which the view is computed.", "view", "stream"),
    _counter("smile_publisher_publications", "publisher.publications", "Publications that were logged."),
    _counter("smile_publisher_events", "publisher.events", "Events that were logged."),
    _counter("smile_publisher_repeated", "publisher.repeated", "Events that were logged before."),
    _counter("smile_publisher_imported", "publisher.imported", "Events and changed rows of imports that were logged."),
    _counter("smile_publisher_refused", "publisher.refused", "Publications that were refused."),
    _counter("smile_publisher_commits", "publisher.commits", "Commits to the log."),
    _gauge("smile_publisher_waiting_events", "publisher.waiting_events", "Events that wait for a commit."),
    _gauge("smile_publisher_waiting_bytes", "publisher.waiting_bytes", "Size of the events that wait."),
    _gauge("smile_publisher_commit_ms", "publisher.commit_ms", "Duration of the last commit."),
    _gauge("smile_keeper_at", "keeper.at", "Time of the maintainer's status, in seconds since 1970."),
    _gauge("smile_keeper_partitions", "keeper.partitions", "Partitions of the work."),
    _gauge("smile_keeper_number", "keeper.number", "Number of the last batch."),
    _gauge("smile_keeper_horizon", "keeper.horizons.*", "Horizon of the stream that was read.", "stream"),
    _gauge("smile_keeper_waiting_events", "keeper.waiting_events", "Events in the log that are not processed."),
    _gauge("smile_keeper_waiting_bytes", "keeper.waiting_bytes", "Size of the events that are not processed."),
    _counter("smile_keeper_events", "keeper.events", "Events processed."),
    _counter("smile_keeper_changed_rows", "keeper.changed_rows", "Rows of views that changed."),
    _counter("smile_keeper_batches", "keeper.batches", "Batches processed."),
    _gauge("smile_keeper_events_per_second", "keeper.events_per_second", "Events a second, recently."),
    _gauge("smile_keeper_changed_rows_per_second", "keeper.changed_rows_per_second", "Changes a second, recently."),
    _gauge("smile_keeper_batches_per_second", "keeper.batches_per_second", "Batches a second, recently."),
    _gauge("smile_keeper_state_bytes", "keeper.state_bytes", "Size of the state."),
    _gauge("smile_keeper_written_bytes", "keeper.written_bytes", "State written in the last batch."),
    _gauge("smile_keeper_batch_ms", "keeper.batch_ms.*", _BATCH_PARTS, "part"),
    _gauge("smile_keeper_stage_ms", "keeper.stage_ms.*.*", _STAGE_PARTS, "stage", "part"),
    _gauge("smile_link_for_seconds", "links.*.for_s", "How long the link is open, or absent.", "link"),
    _counter("smile_link_opened", "links.*.opened", "Links that were opened to the neighbour at this address.", "link"),
    _gauge("smile_link_delay_ms", "links.*.delay_ms", "Time until the last data message was confirmed.", "link"),
    _counter("smile_link_sent_bytes", "links.*.sent.bytes", "Bytes sent over the link.", "link"),
    _gauge("smile_link_sent_bytes_per_second", "links.*.sent.bytes_per_s", "Bytes sent a second, recently.", "link"),
    _gauge("smile_link_sent_rows_per_second", "links.*.sent.rows_per_s", "Rows sent a second, recently.", "link"),
    _counter("smile_link_received_bytes", "links.*.received.bytes", "Bytes received over the link.", "link"),
    _gauge("smile_link_received_bytes_per_second", "links.*.received.bytes_per_s", "Bytes received a second.", "link"),
    _gauge("smile_link_received_rows_per_second", "links.*.received.rows_per_s", "Rows received a second.", "link"),
    _gauge(
        "smile_link_curious_seconds", "links.*.curious.*.for_s", "How long it waits for an answer.", "link", "import"
    ),
    _counter("smile_link_questions_asked", "links.*.questions_asked", "Questions for what is missing.", "link"),
    _counter("smile_link_questions_answered", "links.*.questions_answered", "Questions of the neighbour.", "link"),
    _gauge("smile_import_for_seconds", "imports.*.for_s", "How long the import is in its state.", "import"),
    _gauge("smile_import_edition", "imports.*.edition", "Edition of the import.", "import"),
    _gauge("smile_import_links", "imports.*.links", "Links that carry the import.", "import"),
    _gauge("smile_import_horizon", "imports.*.horizons.*", "Horizon that has arrived.", "import", "stream"),
    _gauge("smile_import_behind_seconds", "imports.*.behind_s", "Age of what has arrived.", "import"),
    _gauge("smile_import_gaps", "imports.*.gaps", "Gaps before what has arrived.", "import"),
    _counter(
        "smile_import_questions", "imports.*.questions", "Questions for what is missing, on open links.", "import"
    ),
    _gauge("smile_import_redundant", "imports.*.redundant", "Messages that brought nothing new.", "import"),
    _gauge("smile_source_for_seconds", "connectors.sources.*.for_s", "How long it works, or waits.", "source"),
    _gauge("smile_source_failures", "connectors.sources.*.failures", "Failures since the last success.", "source"),
    _counter("smile_source_events", "connectors.sources.*.events", "Events that the source has published.", "source"),
    _counter("smile_source_repeated", "connectors.sources.*.repeated", "Events that were in the log.", "source"),
    _counter("smile_source_refused", "connectors.sources.*.refused", "Events that the stream has refused.", "source"),
    _gauge("smile_source_dead_letters", "connectors.sources.*.dead_letters", "Dead letters of the source.", "source"),
    _gauge(
        "smile_source_behind_seconds",
        "connectors.sources.*.behind_s",
        "Time since everything was read that the source had.",
        "source",
    ),
    _gauge("smile_sink_for_seconds", "connectors.sinks.*.for_s", "How long it works, or waits.", "sink"),
    _gauge("smile_sink_failures", "connectors.sinks.*.failures", "Failures since the last success.", "sink"),
    _counter("smile_sink_writes", "connectors.sinks.*.writes", "Writes of the sink.", "sink"),
    _counter("smile_sink_rows", "connectors.sinks.*.rows", "Changed rows that the sink has written.", "sink"),
    _gauge("smile_sink_dead_letters", "connectors.sinks.*.dead_letters", "Dead letters of the sink.", "sink"),
    _gauge(
        "smile_sink_behind_seconds",
        "connectors.sinks.*.behind_s",
        "Time since the sink had everything that the view had.",
        "sink",
    ),
    _gauge("smile_database_for_seconds", "postgres.connections.*.for_s", "How long it works, or waits.", "worker"),
    _gauge("smile_database_failures", "postgres.connections.*.failures", "Failures since the last success.", "worker"),
    _counter("smile_capture_events", "postgres.capture.events", "Events of the database that were published."),
    _counter("smile_capture_repeated", "postgres.capture.repeated", "Events that were in the log already."),
    _counter("smile_capture_unlogged", "postgres.capture.unlogged", "NON-GUARANTEED events that were taken."),
    _counter("smile_capture_messages", "postgres.capture.messages", "IMMEDIATE events in logical messages."),
    _counter("smile_capture_refused", "postgres.capture.refused", "Events that the broker has refused."),
    _counter("smile_capture_batches", "postgres.capture.batches", "Batches of events of the database."),
    _gauge("smile_capture_waiting_events", "postgres.capture.waiting_events", "Committed events that wait."),
    _gauge("smile_capture_lag_seconds", "postgres.capture.lag_s", "Age of the oldest committed event that waits."),
    _gauge(
        "smile_capture_oldest_transaction_seconds",
        "postgres.capture.oldest_transaction_s",
        "Age of the oldest transaction of the database that writes.",
    ),
    _gauge("smile_database_exceptions", "postgres.capture.exceptions", "Events in exception queues."),
    _counter(
        "smile_database_delivered",
        "postgres.database_subscriptions.*.delivered",
        "Deliveries of the subscription's stream.",
        "subscription",
    ),
    _gauge(
        "smile_database_position",
        "postgres.database_subscriptions.*.position.*",
        "Position in the stream.",
        "subscription",
        "origin",
    ),
    _counter("smile_view_table_transactions", "postgres.view_tables.*.transactions", "Transactions.", "table"),
    _counter("smile_view_table_rows", "postgres.view_tables.*.rows", "Changed rows that were written.", "table"),
    _gauge(
        "smile_gateway_delay_ms",
        "gateway.delays_ms.*.*",
        "Delays of the last half minute: publish, until a publication is answered; delivery, from event to subscriber.",
        "kind",
        "part",
    ),
    _gauge("smile_gateway_connections", "gateway.connections", "Connections."),
    _gauge("smile_gateway_subscriptions", "gateway.subscriptions", "Subscriptions."),
    _gauge("smile_gateway_publications_pending", "gateway.publications_pending", "Publications not answered yet."),
    _counter("smile_gateway_requests", "gateway.requests", "HTTP requests."),
    _counter("smile_gateway_messages", "gateway.messages", "WebSocket messages received."),
    _counter("smile_gateway_events", "gateway.events", "Events received."),
    _counter("smile_gateway_frames", "gateway.frames", "Frames sent over WebSockets."),
    _counter("smile_gateway_rows", "gateway.rows", "Rows sent to subscribers."),
    _counter("smile_gateway_refused", "gateway.refused.*", "Refusals, by code of the error.", "code"),
)
"""The metrics of a broker, at /metrics."""

PIPELINE_METRICS: Final = (
    _counter("smile_events", "events", "Events processed."),
    _counter("smile_changed_rows", "changed_rows", "Rows of views that changed."),
    _counter("smile_batches", "batches", "Batches processed."),
    _gauge("smile_events_per_second", "events_per_second", "Events processed a second, recently."),
    _gauge("smile_state_bytes", "state_bytes", "Size of the state."),
    _gauge("smile_waiting_events", "waiting_events", "Events in the log that are not processed yet."),
    _gauge("smile_waiting_bytes", "waiting_bytes", "Size of the events in the log that are not processed yet."),
    _gauge("smile_batch_seconds", "batch_ms.*", _BATCH_PARTS, "part", divisor=1000),
    _gauge("smile_stage_seconds", "stage_ms.*.*", _STAGE_PARTS, "stage", "part", divisor=1000),
    _gauge("smile_horizon_tick", "horizons.*", "The horizon of each stream.", "stream"),
)
"""The metrics of a pipeline without a broker, of `smile status DIR --as prometheus`."""
