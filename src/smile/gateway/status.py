"""How the broker fares: for people and programs (`/status`), for Prometheus (`/metrics`), for whoever restarts it
(`/health`)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from smile.gateway.access import Right
from smile.gateway.answers import Answer, encode
from smile.gateway.calls import Call
from smile.gateway.gateway import Gateway
from smile.knowledge.json import tick_json

PROMETHEUS: Final = b"text/plain; version=0.0.4; charset=utf-8"

_LABELLED: Final = {"views": "view", "streams": "stream", "horizons": "stream", "refused": "code"}
"""Tables whose keys are names: a metric has the name as a label."""


async def status(call: Call) -> Answer:
    call.require(Right.admin)
    call.query(())
    return Answer(encode(_jsonable(await call.in_thread(lambda: fares(call.gateway)))))


async def health(call: Call) -> Answer:
    """A word, which is all that everybody may know."""
    call.query(())
    word = "stopping" if call.gateway.stopping else call.gateway.broker.health.partition(":")[0]
    return Answer(encode({"health": word}), 200 if word == "ok" else 503)


async def metrics(call: Call) -> Answer:
    call.require(Right.admin)
    call.query(())
    told = await call.in_thread(lambda: fares(call.gateway))
    return Answer("".join(f"{line}\n" for line in prometheus(told)).encode(), 200, PROMETHEUS)


def fares(gateway: Gateway) -> dict[str, Any]:
    counts = gateway.counts
    own = {
        "connections": gateway.connections(),
        "subscriptions": len(gateway.followers),
        "publications_pending": gateway.returns.pending,
        "requests": counts["requests"],
        "messages": counts["messages"],
        "events": counts["events"],
        "frames": counts["frames"],
        "rows": counts["rows"],
        "refused": dict(gateway.refusals),
    }
    return {**gateway.broker.status(), "gateway": own}


def prometheus(told: Mapping[str, Any]) -> Iterator[str]:
    """Every number that is told, with the way to it as its name. Those of one name stand together."""
    found: dict[str, list[str]] = {}
    for name, labels, value in _numbers(told, "smile", {}):
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        found.setdefault(name, []).append(f"{name}{{{shown}}} {value}" if shown else f"{name} {value}")
    for name, lines in found.items():
        yield f"# TYPE {name} gauge"
        yield from lines


def _numbers(
    told: Mapping[str, Any], name: str, labels: Mapping[str, str]
) -> Iterator[tuple[str, Mapping[str, str], int | float]]:
    for key, value in told.items():
        below = f"{name}_{re.sub(r'[^a-zA-Z0-9_]', '_', str(key))}"
        if isinstance(value, bool):
            yield below, labels, int(value)
        elif isinstance(value, int | float):
            yield below, labels, value
        elif isinstance(value, Mapping) and key in _LABELLED:
            one = below.removesuffix("s")
            for named, inner in value.items():
                if isinstance(inner, Mapping):
                    yield from _numbers(inner, one, {**labels, _LABELLED[key]: str(named)})
                elif isinstance(inner, int | float):
                    yield one, {**labels, _LABELLED[key]: str(named)}, inner
        elif isinstance(value, Mapping):
            yield from _numbers(value, below, labels)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _jsonable(told: Any) -> Any:
    """Ticks beyond 2^53 are text, as everywhere."""
    if isinstance(told, Mapping):
        return {str(key): _jsonable(value) for key, value in told.items()}
    if isinstance(told, list | tuple):
        return [_jsonable(value) for value in told]
    return tick_json(told) if isinstance(told, int) and not isinstance(told, bool) else told
