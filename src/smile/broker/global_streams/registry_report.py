"""What a broker reports of the registry: the publishers that it knows, and the plans that it runs."""

import hashlib
from collections.abc import Iterable, Mapping, Set as AbstractSet
from threading import Lock
from typing import Any

from smile.algebra import mmpl
from smile.broker.global_streams.global_import import GlobalImport
from smile.broker.global_streams.known_publishers import KnownPublisher, Registrations
from smile.broker.global_streams.plan_source import RunningSource
from smile.broker.network.producer_registry import PRODUCER
from smile.errors import SmileError
from smile.knowledge.values.json import tick_json
from smile.log.storage.durable import DurableLog
from smile.registry.epochs import ClosedEpoch, EpochMember
from smile.registry.producer_channels import ProducerChannels, RegisteredProducer
from smile.registry.schema import GlobalSchema

Json = dict[str, Any]


class Rivalries:
    """Finds producers that have channels of earlier ones at other brokers. Thread-safe. Compares only those that are
    new."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._channels: dict[str, ProducerChannels] = {}

    def find(self, stream: GlobalSchema, unusable: AbstractSet[str], known: Registrations) -> dict[str, str]:
        """What is wrong with them, by key. Those that are `unusable` are left out."""
        producers = {
            p.key: RegisteredProducer(p.version, p.host, p.name, p.condition)
            for p in known.publishers
            if p.role == PRODUCER and p.key not in unusable
        }
        with self._lock:
            channels = self._channels.get(stream.name)
            if channels is None or channels.stream != stream:
                channels = self._channels[stream.name] = ProducerChannels(stream)
            channels.update({(p.host, p.name): p for p in producers.values()})
            found = [(key, p, channels.find_rivals(p.host, p.condition)) for key, p in producers.items()]
        return {
            key: f"it has channels of {rivals[0]}, and is held back"
            for key, p, rivals in found
            if rivals and rivals[0] < p
        }


def report_stream(
    stream: GlobalSchema, problems: Mapping[str, SmileError], known: Registrations, rivalries: Rivalries
) -> Json:
    """`problems` are why publishers cannot be used."""
    rivals = rivalries.find(stream, problems.keys(), known)
    return {
        "stream": stream.name,
        "channel": [name for name, _ in stream.key_columns],
        "columns": {name: str(data) for name, data in stream.types.items()},
        "registrations": _digest_of(known),
        "closed": None if known.epoch is None else _report_epoch(known.epoch, ()),
        "closing": [
            _report_epoch(epoch, waiting)
            for epoch, waiting in known.declared
            if known.epoch is None or epoch.closed_to > known.epoch.closed_to
        ],
        "publishers": [
            {
                "name": p.name,
                "broker": p.host,
                "role": p.role,
                "where": p.condition,
                "load": p.load,
                "problem": _message(problems, known, p) or rivals.get(p.key),
            }
            for p in known.publishers
        ],
        "held_back": [claim.host for _, claim in known.conflicts],
        "outside": [claim.host for claim in known.strangers],
    }


def _report_epoch(epoch: ClosedEpoch, waiting: Iterable[EpochMember]) -> Json:
    return {
        "epoch": epoch.digest,
        "closed_to": tick_json(epoch.closed_to),
        "for_good": epoch.is_for_good,
        "members": [member.host for member in epoch.members],
        "waiting": [member.host for member in waiting],
    }


def import_epochs(program: mmpl.Program, log: DurableLog) -> dict[str, str]:
    """The closed epoch with respect to which things are final, by the name that an imported stream has in the log."""
    streams = (i.stream.name for i in program.imports if i.stream is not None and i.stream.many_origins)
    memberships = ((name, log.membership(name)) for name in streams)
    return {name: membership.epoch for name, membership in memberships if membership is not None and membership.epoch}


def describe_closing(known: Registrations) -> str:
    """What has to happen so that more of a global stream becomes final."""
    open_epochs = [(e, w) for e, w in known.declared if known.epoch is None or e.closed_to > known.epoch.closed_to]
    for epoch, waiting in open_epochs:
        if waiting:
            hosts = ", ".join(member.host for member in waiting)
            return f"{known.relation} is being closed as epoch {epoch.digest}; not confirmed by {hosts}"
    after = "" if known.epoch is None else f" after epoch {known.epoch.digest}"
    return f"{known.relation} is open{after}: another producer may come until it is closed"


def _message(problems: Mapping[str, SmileError], known: Registrations, publisher: KnownPublisher) -> str | None:
    problem = problems.get(publisher.key)
    if problem is not None:
        return problem.diagnostics[0].message
    return "its lease has ended: it cannot be reached" if publisher.host in known.absent else None


def _digest_of(known: Registrations) -> str:
    """Identifies the registrations that are known: two brokers with the same ones plan alike."""
    text = repr([(p.role, p.key, p.condition) for p in known.publishers])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def report_plan(import_: GlobalImport, meta_plan: str) -> Json:
    problem = import_.problem
    return {
        "name": import_.name,
        "stream": import_.import_.relation,
        "where": str(import_.condition),
        "republisher": import_.is_republisher,
        "views": list(import_.views),
        "meta_plan": meta_plan,
        "sources": [_report_source(source) for source in import_.plan if source not in import_.absent],
        "absent": [_report_source(source) for source in import_.absent],
        "ending": [_report_source(source) for source in import_.sources if source not in import_.plan],
        "epoch": import_.epoch or None,
        "origins": {origin: str(tick) for origin, tick in import_.horizons.items()},
        "problem": None if problem is None else problem.diagnostics[0].message,
    }


def _report_source(source: RunningSource) -> Json:
    return {"broker": source.host, "stream": source.stream, "where": source.condition}
