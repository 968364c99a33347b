"""docs/reference/metrics.md: the metrics of a broker and of a pipeline, from their definitions."""

from prometheus_client.core import CounterMetricFamily

from smile.gateway.metrics import BROKER_METRICS, DelayHistograms, MetricDefinition
from tools.reference.markdown import code, page, table

INTRODUCTION = """
`GET /metrics` has them for Prometheus. `smile status` and `GET /status` show the same numbers. The keeper is the part
of the broker that maintains views. [Metrics to alert on](../operating.md#metrics-to-alert-on) says which matter.
"""


def metrics_page() -> str:
    rows = [_row(definition) for definition in BROKER_METRICS]
    for histogram in DelayHistograms().all:
        (family,) = histogram.collect()
        rows.append([code(family.name), "histogram", "", family.documentation])
    rows.append(
        [code("smile_trouble_since"), "gauge", "kind, subject", "Since when there is a trouble, in seconds since 1970."]
    )
    return page("Metrics", INTRODUCTION, table(["metric", "type", "labels", "meaning"], sorted(rows)))


def _row(definition: MetricDefinition) -> list[str]:
    is_counter = definition.family is CounterMetricFamily
    name = f"{definition.name}_total" if is_counter else definition.name
    return [code(name), "counter" if is_counter else "gauge", ", ".join(definition.labels), definition.help]
