"""Ad-hoc queries: temporary views, which end when nobody subscribes to them any more.

A query is compiled with the program, and is not part of it. It has a maintainer of its own, with the engine in this
process, whatever engine the views have: so it is answered at once, and cannot disturb the views. Its state is deleted
when it ends; nothing of it survives a restart.
"""

import logging
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Protocol

from smile import limits
from smile.algebra import mmpl
from smile.algebra.dependencies import subprogram
from smile.algebra.printer import print_expression
from smile.algebra.trees import walk
from smile.broker.global_streams.registry_report import import_epochs
from smile.broker.history import open_past
from smile.broker.maintenance.listener import BatchDelivery, Horizons, ViewPause, ViewSnapshot
from smile.broker.maintenance.local_executor import LocalExecutor
from smile.broker.maintenance.maintainer import Maintainer
from smile.broker.views.portable_tokens import base_streams
from smile.broker.views.view import View
from smile.engine.generation import Generation
from smile.errors import SmileError, error
from smile.horizons import HORIZON_MIN
from smile.log.storage.durable import DurableLog
from smile.log.storage.past_log import PastLog
from smile.program import CompiledProgram

_WAIT_S = 0.05
_log = logging.getLogger("smile.broker.queries")


class QueriedBroker(Protocol):
    """What changes while a broker runs."""

    @property
    def log(self) -> DurableLog: ...

    @property
    def program(self) -> mmpl.Program:
        """As it runs."""

    @property
    def log_horizons(self) -> Horizons: ...


@dataclass(eq=False)
class AdHocQuery:
    """A query that runs. It is the listener of its maintainer. `used_at` is when it was last used."""

    name: str
    principal: str
    text: str
    reads: frozenset[str]
    """The relations that it names."""
    view: View
    used_at: float
    problem: SmileError | None = None
    """Why it has failed."""
    maintainer: Maintainer = field(init=False)

    def deliver(self, delivery: BatchDelivery) -> None:
        self.view.deliver(delivery.deltas.get(self.name), delivery.horizons)

    def restore(self, snapshot: ViewSnapshot) -> None:
        self.view.restore(snapshot)

    def pause_views(self, generation: str, separated: Generation, pause: ViewPause) -> None:
        """A query that cannot be computed is not resumed."""
        self.fail(error(pause.code, pause.message, hint="Ask for less: with conditions, or with fewer groups."))

    def resume_views(self, generation: Generation) -> None:
        return

    def warn(self, message: str) -> None:
        _log.warning("a query recovers from an error", extra={"query": self.name, "what": message})

    def fail(self, problem: SmileError) -> None:
        self.problem = problem
        self.view.end(problem)


class AdHocQueries:
    """Thread-safe. `clock` returns monotonic seconds. `directory` is for the state of queries, and is emptied."""

    def __init__(self, directory: Path, broker: QueriedBroker, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory, self._broker, self._clock = directory, broker, clock
        self._queries: dict[str, AdHocQuery] = {}
        self._lock = Lock()
        shutil.rmtree(directory, ignore_errors=True)

    def __len__(self) -> int:
        return len(self._queries)

    def find(self, name: str) -> AdHocQuery | None:
        return self._queries.get(name)

    def open(
        self, name: str, principal: str, text: str, compiled: CompiledProgram, as_of: int | None = None
    ) -> AdHocQuery:
        """Runs the view of this name in the compiled program. E192 if there are too many queries. It returns when the
        view has everything that the log has, if that cannot be told by its horizons: as of a tick, which the horizons
        do not exceed, and of global streams, whose horizons wait for producers that may still come."""
        self.refuse_too_many(principal)
        _refuse_unreceived(compiled, name, self._broker.program)
        generation = Generation(name, compiled.rewritten, (name,), (name,), (name,))
        source = generation.inputs()[name]  # raises an error if it cannot run
        log = self._broker.log
        streams = generation.plan(1).stages[0].streams
        past = open_past(log, compiled.rewritten, name, streams, as_of)
        is_open = any(i.is_global and i.log_streams[0].name in streams for i in compiled.rewritten.imports)

        def horizons() -> Horizons:
            return self._broker.log_horizons if as_of is None else past.newest().named_horizons()

        imported = {stream.name for import_ in compiled.rewritten.imports for stream in import_.log_streams}
        view = View(
            name,
            source,
            name,
            horizons,
            base_streams(compiled.rewritten, name),
            self._clock,
            dict.fromkeys(log.streams, HORIZON_MIN),
            imported_streams=imported,
            find_epochs=partial(import_epochs, subprogram(compiled.rewritten, name), log),
        )
        query = AdHocQuery(name, principal, text, relations_read(compiled, name), view, self._clock())
        query.maintainer = Maintainer(
            LocalExecutor(self._directory / name, self._clock),
            past,
            [generation],
            query,
            view_bytes_max=limits.query_bytes_max,
            clock=self._clock,
        )
        with self._lock:
            self.refuse_too_many(principal)
            self._queries[name] = query
        query.maintainer.start()
        if is_open or as_of is not None:
            self._wait(query, past)
        return query

    def _wait(self, query: AdHocQuery, past: PastLog) -> None:
        """Until the query has everything that it needs of the past."""
        deadline = self._clock() + limits.wait_ms_max / 1000
        while not past.is_read.wait(_WAIT_S) and query.problem is None and self._clock() < deadline:
            query.used_at = self._clock()
        if not past.is_read.is_set():
            self.close(query.name)
            hint = "Ask for less: with conditions on the tick, or with fewer groups."
            raise query.problem or error("E108", "the query is not computed in time", hint=hint)

    def refuse_too_many(self, principal: str) -> None:
        own = sum(query.principal == principal for query in list(self._queries.values()))
        if own >= limits.queries_each_max or len(self._queries) >= limits.queries_max:
            hint = f"{limits.queries_each_max} for each principal, and {limits.queries_max} in all; end one of them."
            raise error("E192", "there are too many queries at a time", hint=hint)

    def close(self, name: str) -> None:
        """Ends a query. Its subscribers are told."""
        with self._lock:
            query = self._queries.pop(name, None)
        if query is not None:
            query.view.end(query.problem or error("E193", "the query has ended", hint="Ask again."))
            query.maintainer.stop()
            shutil.rmtree(self._directory / name, ignore_errors=True)

    def close_all(self) -> None:
        for name in list(self._queries):
            self.close(name)

    def log_advanced(self) -> None:
        for query in list(self._queries.values()):
            query.maintainer.wake()

    def end_unused(self) -> None:
        """Ends queries that have failed, or that nobody has used for a time. Call it a few times a second."""
        for query in list(self._queries.values()):
            query.view.wake_for_progress()
            if query.view.subscriber_count:
                query.used_at = self._clock()
            if query.problem is not None or self._clock() - query.used_at > limits.query_lease_s:
                self.close(query.name)

    def status(self) -> list[Mapping[str, object]]:
        return [
            {
                "name": query.name,
                "principal": query.principal,
                "text": query.text,
                "rows": query.view.row_count,
                "subscribers": query.view.subscriber_count,
                "state_bytes": sum(query.maintainer.state_bytes_by_view().values()),
                "used_s_ago": round(self._clock() - query.used_at, 3),
            }
            for query in list(self._queries.values())
        ]


def _refuse_unreceived(compiled: CompiledProgram, view: str, running: mmpl.Program) -> None:
    """E196 if a query needs events of a global stream that the running program does not receive. It has no plan of its
    own: the events of the past would have to come first, from everywhere."""
    received = {import_.name for import_ in running.imports}
    for import_ in subprogram(compiled.rewritten, view).imports:
        if not import_.is_global or import_.name in received:
            continue
        others = [i for i in running.imports if i.is_global and i.relation == import_.relation]
        known = [
            f"{_describe_import(i)}, for {', '.join(_readers(running, i))}" for i in others if _readers(running, i)
        ]
        hint = "Add a view of it to the program." + (f" These are received: {'; '.join(known)}." if known else "")
        raise error("E196", f"no view of the program receives {_describe_import(import_)}", hint=hint)


def _describe_import(import_: mmpl.ImportDef) -> str:
    condition = import_.condition
    return import_.relation if condition is None else f"{import_.relation} where {print_expression(condition)}"


def _readers(program: mmpl.Program, import_: mmpl.ImportDef) -> list[str]:
    """The views that read an import directly."""
    return [
        view.name
        for view in program.views
        if any(isinstance(node, mmpl.RelationRef) and node.name == import_.name for node in walk(view.body))
    ]


def relations_read(compiled: CompiledProgram, view: str) -> frozenset[str]:
    """The relations that the definition of a view names."""
    bodies = [v.body for v in compiled.original.views if v.name == view]
    return frozenset(node.name for body in bodies for node in walk(body) if isinstance(node, mmpl.RelationRef))
