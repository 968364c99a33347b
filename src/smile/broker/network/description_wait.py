"""Waits for the descriptions of what a program imports: asks the neighbours again until all have answered.

Meanwhile the broker runs the part of its program that needs none of them, and describes its own relations. So two
brokers that import from each other can both be started for the first time. Whenever a description has arrived, the
broker applies what can be compiled with it.
"""

import logging
from collections.abc import Mapping
from random import Random
from threading import Event, Thread
from typing import Any, Protocol

from smile import limits
from smile.analysis.recorded_types import MissingImport
from smile.broker.health import Trouble, TroubleKind
from smile.broker.network.descriptions import (
    FetchedDescriptions,
    RelationName,
    SourceEdge,
    find_waiting_circles,
    waiting_edges,
)
from smile.errors import Diagnostic, SmileError, error
from smile.links.redial import Redial
from smile.program import CompiledProgram

_log = logging.getLogger("smile.broker.network")


class DescriptionHost(Protocol):
    """What it needs of its broker."""

    @property
    def compiled(self) -> CompiledProgram: ...

    def fetch_descriptions(self) -> FetchedDescriptions:
        """Asks for the descriptions that the program lacks."""

    def apply_descriptions(self, fetched: FetchedDescriptions) -> None:
        """Applies the part of the program that can be compiled with these descriptions."""


class DescriptionWait:
    """`broker` is the name of this broker. `fetched` is what its neighbours have answered at its start."""

    def __init__(self, broker: str, host: DescriptionHost, fetched: FetchedDescriptions, random: Random) -> None:
        self._broker, self._host, self._fetched, self._random = broker, host, fetched, random
        self._problem: Diagnostic | None = None
        self._is_applying = False
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="descriptions", daemon=True)
        self._circles = find_waiting_circles(broker, host.compiled.left_out, fetched.edges)

    def start(self) -> None:
        if self.is_waiting:
            _log.warning("waiting for neighbours", extra={"what": self.text})
            self._thread.start()

    def stop(self) -> None:
        """A call to a neighbour that is in progress is not waited for."""
        self._stopping.set()

    @property
    def is_waiting(self) -> bool:
        return self._is_applying or bool(self._host.compiled.left_out)

    @property
    def text(self) -> str:
        """What it waits for, and why."""
        return "; ".join(map(_entry_text, self.status()))

    def status(self) -> list[dict[str, Any]]:
        """The descriptions that are missing, and the relations that do not fit those that are there, with the
        reasons."""
        compiled = self._host.compiled
        missing = [
            {"of": str(i), "relation": i.relation, "brokers": list(i.brokers), **self._describe(self._reason(i))}
            for i in compiled.missing_imports
        ]
        return missing + [
            {"of": name, "relation": name, "brokers": [], **self._describe(broken.problem)}
            for name, broken in compiled.broken.items()
        ]

    def _describe(self, problem: Diagnostic) -> dict[str, Any]:
        """An error of the program says where it is."""
        message = problem.message
        if problem.span is not None and problem.code not in ("E103", "E138"):
            line, column = self._host.compiled.source.line_col(problem.span.start)
            message = f"{self._host.compiled.source.name}:{line}:{column}: {message}"
        return {"code": problem.code, "message": message, "hint": problem.hint}

    def _reason(self, import_: MissingImport) -> Diagnostic:
        refused = (self._fetched.refused.get((broker, import_.relation)) for broker in import_.brokers)
        reasons = [self._circles.get(import_), self._fetched.missing.get(import_), *refused, self._problem]
        return next((r for r in reasons if r is not None), Diagnostic("E138", "the neighbour is asked", None))

    def troubles(self) -> list[Trouble]:
        """None of them is severe: everything else goes on, and neighbours may wait for it."""
        return [
            Trouble(
                TroubleKind.IMPORT,
                entry["relation"],
                entry["code"],
                _entry_text(entry),
                is_severe=False,
            )
            for entry in self.status()
        ]

    def error_of(self, relation: str) -> SmileError | None:
        """Why a relation is not there yet; None if it does not wait for anything."""
        imports = self._host.compiled.left_out.get(relation)
        if imports is None:
            return None
        broken = self._host.compiled.broken.get(relation)
        if broken is not None:
            found = self._describe(broken.problem)
            return error(found["code"], f"{relation} does not run: {found['message']}", hint=found["hint"])
        if not imports:
            names = ", ".join(self._host.compiled.broken)
            hint = "`smile status` says which error that is."
            return error("E138", f"{relation} is not there yet: it needs {names}, which has an error", hint=hint)
        names = ", ".join(map(str, imports))
        hint = "The broker asks again by itself. `smile status` says why there is no answer."
        return error("E138", f"{relation} is not there yet: it needs the description of {names}", hint=hint)

    def describe(self, relation: str) -> dict[str, Any] | None:
        """The answer to a neighbour that asks for a relation that is not there yet; None if it does not wait."""
        imports = self._host.compiled.left_out.get(relation)
        if imports is None:
            return None
        known: dict[SourceEdge, None] = dict.fromkeys([*waiting_edges(self._broker, relation, imports)])
        readers: dict[RelationName, list[SourceEdge]] = {}
        for edge in self._fetched.edges:
            readers.setdefault(edge[0], []).append(edge)
        pending = list(known)
        while pending:
            for edge in readers.get(pending.pop()[1], ()):
                if edge not in known:
                    known[edge] = None
                    pending.append(edge)
        return {"waiting": True, "sources": [[*reader, *source] for reader, source in known]}

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        redial = Redial(self._random)
        while self.is_waiting and not self._stopping.wait(min(redial.wait_s(0), limits.description_wait_s_max)):
            before = self.text
            try:
                if self.step():
                    redial = Redial(self._random)
            except Exception:  # noqa: BLE001  # any error: it must ask again
                if not self._stopping.is_set():
                    _log.exception("neighbours could not be asked")
            if (text := self.text) not in ("", before):
                _log.warning("waiting for neighbours", extra={"what": text})
        if not self.is_waiting:
            _log.info("all descriptions are known")

    def step(self) -> bool:
        """Asks once for everything that is missing, and applies what has become known. Returns whether anything has."""
        missing, fetched = self._waits_for, self._host.fetch_descriptions()
        self._fetched = fetched
        try:
            self._circles = find_waiting_circles(self._broker, self._host.compiled.left_out, fetched.edges)
            if fetched.has_news:
                self._is_applying = True
                self._host.apply_descriptions(fetched)
            self._problem = None
        except SmileError as problem:
            self._problem = problem.diagnostics[0]
        finally:
            self._is_applying = False
        return self._waits_for != missing

    @property
    def _waits_for(self) -> tuple[object, ...]:
        compiled = self._host.compiled
        return *compiled.missing_imports, *compiled.broken


def _entry_text(entry: Mapping[str, Any]) -> str:
    if not entry["brokers"]:
        return f"{entry['of']} does not run: {entry['message']}"
    return f"waiting for the description of {entry['of']}: {entry['message']}"
