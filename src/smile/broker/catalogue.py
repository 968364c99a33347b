"""The catalogue of a broker: its streams and views with their types and figures, and the graph of its program, as JSON.

It says everything to everybody: the gateway leaves out what its caller may not see.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from smile.algebra import mmpl
from smile.algebra.dependencies import subprogram
from smile.algebra.printer import print_expression, print_program
from smile.algebra.row_order import row_order
from smile.analysis.type_description import describe_type
from smile.broker.activity import Activity
from smile.broker.global_streams.global_imports import GlobalImports
from smile.broker.global_streams.registry_report import import_epochs
from smile.broker.maintenance.maintainer import Maintainer
from smile.broker.network.description_wait import DescriptionWait
from smile.broker.network.network import Network
from smile.broker.network.origin_report import describe_origins
from smile.broker.program_difference import subscribed_views
from smile.broker.queries import relations_read
from smile.broker.subscriptions.selection import find_selection
from smile.broker.views.condition import parse_condition
from smile.broker.views.view import View
from smile.engine.plan import partitioned_stages
from smile.errors import did_you_mean, error
from smile.graph.knowledge_graph import KnowledgeGraph, RelationObject
from smile.graph.stages import Stage
from smile.horizons import shown_horizons
from smile.kernels.compile import compile_graph
from smile.kernels.delta import Delta, concat_deltas
from smile.kernels.transform import InputRelation
from smile.knowledge.finality import FinalityContext, Obstacle, input_streams
from smile.log.storage.database import definition_text
from smile.log.storage.durable import DurableLog
from smile.program import CompiledProgram

Json = dict[str, Any]
Horizons = Mapping[str, int]


class CataloguedBroker(Protocol):
    """What changes while a broker runs."""

    @property
    def compiled(self) -> CompiledProgram: ...

    @property
    def views(self) -> Mapping[str, View]: ...

    def view(self, name: str) -> View: ...

    @property
    def log(self) -> DurableLog: ...

    @property
    def log_horizons(self) -> Horizons: ...

    @property
    def lag_s(self) -> Mapping[str, float]: ...

    @property
    def descriptions(self) -> DescriptionWait: ...

    @property
    def network(self) -> Network: ...

    @property
    def global_imports(self) -> GlobalImports: ...


@dataclass(frozen=True, eq=False)
class NewestEvents:
    source: InputRelation
    rows: Delta
    ticks: Sequence[int]
    origins: Sequence[str]


class RelationCatalogue:
    """`monotonic` returns seconds: the clock of the links."""

    def __init__(
        self, broker: CataloguedBroker, maintainer: Maintainer, activity: Activity, monotonic: Callable[[], float]
    ) -> None:
        self._broker, self._maintainer, self._activity = broker, maintainer, activity
        self._monotonic = monotonic
        self._stages: tuple[CompiledProgram, Sequence[Stage]] | None = None
        """The stages of the program that was asked for last."""

    # ── streams ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def streams(self) -> list[str]:
        """The streams that the program defines or imports."""
        program = self._broker.compiled.rewritten
        return [s.name for s in program.streams] + [i.name for i in program.imports if i.stream is not None]

    def describe_stream(self, name: str) -> Json:
        """E076 if there is no such stream."""
        program, log = self._broker.compiled.rewritten, self._broker.log
        own = next((s for s in program.streams if s.name == name), None)
        import_ = next((i for i in program.imports if i.name == name and i.stream is not None), None)
        stream = own or (None if import_ is None else import_.stream)
        if stream is None:
            hint = did_you_mean(name[:100], self.streams) or f"There are {', '.join(self.streams) or 'no streams'}."
            raise error("E076", f"there is no stream {name[:100]}", hint=hint)
        horizons = self._broker.log_horizons
        return {
            "name": name,
            "mmpl": definition_text(stream),
            "columns": _stream_columns(stream, self._broker.compiled, name),
            "checks": [print_expression(check) for check in stream.checks],
            "unique": [list(columns) for columns in stream.unique],
            "publisher_timed": stream.publisher_timed,
            "origins": describe_origins(log.membership(stream.name), log.stream_horizons(stream.name), stream.is_global)
            if stream.many_origins
            else [],
            "horizon": horizons.get(stream.name),
            "truncated_to": log.truncated_to(stream.name),
            "events": self._activity.events(stream.name),
            "rate": self._activity.events_per_s(stream.name),
            "publishable": own is not None,
            "source": "import" if own is None else "table" if own.is_table else "program",
            "from": [] if import_ is None else list(import_.brokers),
            "readers": [v for v in self.views if stream.name in self._streams_of(v)],
        }

    def log_name(self, stream: str) -> str:
        """The name of the stream in the log."""
        imports = self._broker.compiled.rewritten.imports
        return next((i.stream.name for i in imports if i.name == stream and i.stream is not None), stream)

    def newest_events(self, name: str, count: int) -> "NewestEvents | None":
        """The newest events of a stream, the newest first; None if there are none."""
        selection = find_selection(self._broker.compiled.rewritten, name)
        assert selection is not None, f"{name} is not a stream"
        by_origin = self._broker.log.newest_events(selection.stream, count)
        parts = [selection.select(events, parse_condition(selection.source, {})) for events in by_origin.values()]
        if not parts:
            return None
        rows = concat_deltas(selection.source.layout, parts)
        origins = [o for o, part in zip(by_origin, parts, strict=True) for _ in range(len(part))]
        order = np.argsort(selection.ticks(rows).data)[::-1][:count]
        ticks = selection.ticks(rows).data[order].tolist()
        return NewestEvents(selection.source, rows.take(order), ticks, [origins[i] for i in order])

    def _streams_of(self, view: str) -> Iterable[str]:
        type_ = self._broker.compiled.analysis.relations.get(view)
        return () if type_ is None else type_.seals

    # ── views ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def views(self) -> list[str]:
        """The views that the program defines or imports, subscribed or not."""
        compiled = self._broker.compiled
        names = [v.name for v in compiled.original.views]
        names += [i.name for i in compiled.original.imports if i.stream is None]
        return [*names, *(name for name in compiled.left_out if name not in names)]

    def summarize_view(self, name: str) -> Json:
        """E021 if there is no such view."""
        compiled, view = self._broker.compiled, self._broker.views.get(name)
        type_ = compiled.analysis.relations.get(name)
        if name not in self.views:
            hint = did_you_mean(name[:100], self.views) or f"There are {', '.join(self.views) or 'no views'}."
            raise error("E021", f"there is no view {name[:100]}", hint=hint)
        hidden = set() if type_ is None else type_.heading.hidden
        described = {} if type_ is None else describe_type(type_)["columns"]
        order = next((row_order(v.body) for v in compiled.original.views if v.name == name), ())
        return {
            "name": name,
            "key": [] if type_ is None else list(type_.heading.key),
            "order": [{"column": column, "descending": descending} for column, descending in order],
            "columns": [{"name": n, **column, "hidden": n in hidden} for n, column in described.items()],
            "rows": None if view is None else view.row_count,
            "changes_per_s": self._activity.changes_per_s(name),
            "lag_s": self._broker.lag_s.get(name),
            "subscribers": 0 if view is None else view.subscriber_count,
            "subscribed": view is not None,
            "state": self._state_of(name, view),
            "streams": list(self._streams_of(name)),
        }

    def describe_view(self, name: str) -> Json:
        summary, compiled, view = self.summarize_view(name), self._broker.compiled, self._broker.views.get(name)
        missing = self._broker.descriptions.error_of(name)
        is_known = name in compiled.analysis.relations
        type_json = describe_type(compiled.analysis.relations[name]) if is_known else {}
        return {
            **summary,
            "sql": compiled.statement_text(name),
            "mmpl": print_program(subprogram(compiled.rewritten, name)) if is_known else None,
            "reads": sorted(relations_read(compiled, name)),
            "mask": type_json.get("mask"),
            "seals": type_json.get("seals", {}),
            "final_early": compiled.graph.early_finals(name),
            "remembers": [
                {"what": s.description, "until": s.until, "endless": s.unbounded and s.unbounded.reason}
                for s in compiled.graph.remembered_state(name)
            ],
            "state_bytes": self._maintainer.state_bytes_by_view().get(name, 0),
            "horizons": {} if view is None else shown_horizons(view.horizons),
            "waits_for": None if missing is None else str(missing),
        }

    def finality_context(self, name: str, horizons: Horizons) -> FinalityContext:
        """What is known of the streams of a view whose rows are known at these horizons."""
        broker, view = self._broker, self._broker.view(name)
        program, obstacles = broker.compiled.rewritten, dict[str, Obstacle]()
        imports = broker.network.status(self._monotonic())["imports"]
        for import_ in (i for i in program.imports if not i.is_global):
            problem = _import_obstacle(imports.get(import_.name), import_)
            if problem is not None:
                obstacles |= {s.name: problem for s in import_.log_streams}
        obstacles |= broker.global_imports.obstacles()
        if view.pause is not None:
            text = f"the view is paused ({view.pause.code}: {view.pause.message})"
            obstacles |= dict.fromkeys(view.source.type.seals, Obstacle("paused", text))
        epochs = import_epochs(program, broker.log)
        return FinalityContext(input_streams(program), horizons, broker.log_horizons, obstacles, epochs)

    def _state_of(self, name: str, view: View | None) -> str:
        if view is None:
            return "waiting" if name in self._broker.compiled.left_out else "unsubscribed"
        if view.pause is not None:
            return "paused"
        if name in self._maintainer.filling_views:
            return "filling"
        return "starting" if self._maintainer.state == "starting" else "live"

    # ── the graph of the program ────────────────────────────────────────────────────────────────────────────────────

    def graph(self) -> Json:
        """The plan of the whole program. Views that were added later are computed from the log by themselves, so that
        they share no transforms with the others."""
        compiled = self._broker.compiled
        graph, stages = compiled.graph, self._stages_of(compiled)
        stage_of = {t.output: stage.number for stage in stages for t in stage.transforms}
        exchanged = {(e.relation, e.reader): e.columns for stage in stages for e in stage.exchanges}
        state_bytes = self._maintainer.state_bytes_by_view()
        nodes = [
            {
                "id": r.name,
                "kind": _node_kind(r),
                "name": r.name if r.is_named else None,
                "label": r.name if r.is_named else _operator(graph, r.name),
                "operator": _operator(graph, r.name),
                "view": r.view,
                "stage": stage_of.get(r.name),
                "stored": r.storage_reason,
                "remembers": [
                    {"what": s.description, "until": s.until}
                    for s in (graph.transform_by_output[r.name].state if r.name in graph.transform_by_output else ())
                ],
                "subscribed": r.subscribed,
                "rate": self._activity.events_per_s(r.name) if r.is_logged else self._activity.changes_per_s(r.name),
                "lag_s": self._broker.lag_s.get(r.name),
                "state_bytes": state_bytes.get(r.name),
                "rows": self._broker.views[r.name].row_count if r.name in self._broker.views else None,
                "state": None,
                "problem": None,
            }
            for r in graph.relations.values()
            if r.kind != "changes"
        ]
        shown = {node["id"] for node in nodes}
        edges: list[Json] = [
            {"from": source, "to": t.output, "exchange": None}
            | (
                {"exchange": {"by": None if (by := exchanged[source, t.output]) is None else list(by)}}
                if (source, t.output) in exchanged
                else {}
            )
            for t in graph.transforms
            for source in t.inputs
            if source in shown
        ]
        network = self._broker.network.status(self._monotonic())
        for import_ in compiled.rewritten.imports:
            relation = import_.name if import_.name in shown else import_.input_name
            if relation in shown:
                for broker in import_.brokers:
                    if all(node["id"] != f"link:{broker}" for node in nodes):
                        nodes.append(_link_node(broker, network))
                    edges.append({"from": f"link:{broker}", "to": relation, "exchange": None})
        return {
            "nodes": nodes,
            "edges": edges,
            "stages": [{"number": stage.number, "by": stage.partition_keys} for stage in stages],
            "subscriptions": list(subscribed_views(compiled.original)),
        }

    def _stages_of(self, compiled: CompiledProgram) -> Sequence[Stage]:
        if self._stages is None or self._stages[0] is not compiled:
            kernels = compile_graph(compiled.graph, compiled.rewritten.log_streams)
            self._stages = compiled, partitioned_stages(compiled.graph, kernels)
        return self._stages[1]


def _stream_columns(stream: mmpl.StreamDef, compiled: CompiledProgram, name: str) -> list[Json]:
    type_ = compiled.analysis.relations.get(name) or compiled.analysis.relations[stream.name]
    unique = {column for columns in stream.unique for column in columns}
    described = describe_type(type_)["columns"]
    return [
        {
            "name": column,
            "type": described[column]["type"],
            "role": "tick" if column == stream.tick else "key" if column in unique else "value",
            "nullable": described[column]["nullable"],
            "range": described[column]["range"],
        }
        for column in (stream.tick, *(c for c, _ in stream.columns))
    ]


def _import_obstacle(status: Mapping[str, Any] | None, import_: mmpl.ImportDef) -> Obstacle | None:
    """Why an import does not follow its neighbour; None if it does."""
    brokers = " or ".join(import_.brokers)
    if status is None:
        return Obstacle("neighbour", f"nothing was received from {brokers} yet")
    if status["state"] != "live":
        reason = "" if status["problem"] is None else f": {status['problem']['message']}"
        return Obstacle("neighbour", f"the import from {brokers} is {status['state']}{reason}")
    if status["gaps"]:
        return Obstacle("gap", f"{status['gaps']} ranges from {brokers} are missing, and were asked for again")
    return None


def _operator(graph: KnowledgeGraph, relation: str) -> str | None:
    transform = graph.transform_by_output.get(relation)
    return None if transform is None else transform.operator


def _node_kind(relation: RelationObject) -> str:
    """As the console draws it: an intermediate result stands for the transform that computes it."""
    return {"shared": "transform", "between": "transform"}.get(relation.kind, relation.kind)


def _link_node(broker: str, network: Json) -> Json:
    """The neighbour, over all links to it: one that is open is enough."""
    links = [link for link in network["links"] if link["neighbour"] == broker]
    open_links = [link for link in links if link["state"] == "open"]
    imports = [i for i in network["imports"].values() if broker in i["brokers"]]
    problem = next((link["problem"] for link in links if link["problem"] is not None), None)
    return {
        **dict.fromkeys(_NODE_FIELDS),
        "id": f"link:{broker}",
        "kind": "link",
        "name": broker,
        "label": broker,
        "remembers": [],
        "subscribed": False,
        "state": "up" if open_links else "down",
        "lag_s": max((i["behind_s"] for i in imports if i["behind_s"] is not None), default=None),
        "problem": None if problem is None or open_links else problem["message"],
        "rate": sum(link["received"]["rows_per_s"] for link in open_links) if open_links else None,
    }


_NODE_FIELDS = ("operator", "view", "stage", "stored", "state_bytes", "rows")
