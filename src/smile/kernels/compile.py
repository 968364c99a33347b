"""Compiles a knowledge graph into transforms. Each transform knows the layouts of its inputs, and the domains of their
columns and of its own."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Final

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_types
from smile.algebra.heading import is_key_equated
from smile.analysis.domains import Domains
from smile.analysis.type_analysis import TypeAnalysis, exporting_analysis
from smile.graph.build import build_graph
from smile.graph.knowledge_graph import KnowledgeGraph, TransformObject
from smile.horizons import HORIZON_MIN
from smile.kernels.best import BestTransform
from smile.kernels.delta import Delta
from smile.kernels.expiry import PENDING_KEYS, ExpiryRule, find_expiry_rules
from smile.kernels.groups.distinct import compile_distinct
from smile.kernels.groups.grouping import compile_summarize
from smile.kernels.imported_view import ImportedView
from smile.kernels.joins.asof_join import AsofJoin
from smile.kernels.joins.compile_join import compile_join
from smile.kernels.joins.semi_join import SemiJoin
from smile.kernels.last import LastTransform
from smile.kernels.layout import Layout
from smile.kernels.materialized_view import MaterializedView
from smile.kernels.over.over import OverTransform
from smile.kernels.over.rows import OverRowsTransform
from smile.kernels.row_wise import (
    ExtendTransform,
    HopTransform,
    IdentityTransform,
    ProjectTransform,
    RenameTransform,
    RestrictTransform,
    UnionTransform,
)
from smile.kernels.seals import HorizonAdvance
from smile.kernels.session import SessionTransform
from smile.kernels.silence import SilenceTransform
from smile.kernels.transform import InputRelation, OutputRelation, Transform
from smile.kernels.ungroup import UngroupTransform
from smile.kernels.values import ValuesTransform
from smile.knowledge.aggregate_types import membership
from smile.knowledge.join_types import match_constraints
from smile.knowledge.seals import Seal
from smile.knowledge.types import RelationType
from smile.operators.catalogue import operator_of
from smile.state.run import TableSchema

Compiler = Callable[[Any, tuple[InputRelation, ...], OutputRelation], Transform]
"""Takes a node of one class, so the first parameter is Any."""


@dataclass(frozen=True)
class Kernels:
    """The compiled transforms, by output relation. Each comes after the transforms that it reads from."""

    inputs: Mapping[str, InputRelation]
    transforms: Mapping[str, Transform]
    reads: Mapping[str, tuple[str, ...]]
    expiry_rules: tuple[ExpiryRule, ...] = ()
    """Applied after each batch to remove rows from the states of transforms."""
    initial_changes: Mapping[str, Delta] = field(default_factory=dict)
    """The changes that give the rows which exist before any event: those of imports, by input, and those of VALUES."""

    @cached_property
    def imports(self) -> dict[str, ImportedView]:
        """The transforms of imported views, by the inputs that have their row changes."""
        return {t.import_.changes_name: t for t in self.transforms.values() if isinstance(t, ImportedView)}

    @cached_property
    def table_schemas(self) -> dict[str, Mapping[str, TableSchema]]:
        """The schemas of all tables, by transform or expiry rule, then by table name."""
        schemas = {name: t.table_schemas for name, t in self.transforms.items() if t.table_schemas}
        return {**schemas, **{rule.name: {PENDING_KEYS: rule.schema} for rule in self.expiry_rules}}

    def with_materialized_views(self, views: Iterable[str]) -> "Kernels":
        """Adds a materialized view for each of these views, under `materialized_name(view)`."""
        materialized = {materialized_name(view): MaterializedView(self.inputs[view]) for view in views}
        reads = {**self.reads, **{materialized_name(view): (view,) for view in views}}
        return replace(self, transforms={**self.transforms, **materialized}, reads=reads)


def materialized_name(view: str) -> str:
    return f"{view} shown"


def compile_graph(graph: KnowledgeGraph, streams: tuple[mmpl.StreamDef, ...]) -> Kernels:
    """`streams` are all streams of the log that the program reads."""
    # Every relation of the graph has a name, so the graph is itself a program whose views have one operator each.
    views = tuple(mmpl.ViewDef(t.output, t.rel) for t in graph.transforms)
    flat = mmpl.Program(streams, views, graph.subscriptions)
    analysis = TypeAnalysis(flat)
    domains = Domains(flat, analysis)
    with_permanently_hidden = _relations_with_permanently_hidden(graph, analysis)
    inputs: dict[str, InputRelation] = {}
    for stream in streams:
        ref = mmpl.RelationRef(stream.name)
        layout = Layout((stream.tick,), stream_types(stream), certain=True)
        bottoms = domains.bottom_row(ref)
        inputs[stream.name] = InputRelation(
            stream.name, layout, analysis.relation_type(ref), bottoms, domains.shown_rows.bottom_row(ref), None
        )
    transforms: dict[str, Transform] = {}
    initial_changes: dict[str, Delta] = {}
    for t in graph.transforms:
        ref = mmpl.RelationRef(t.output)
        output = OutputRelation(
            t.output, analysis.relation_type(ref), domains.bottom_row(ref), t.output in with_permanently_hidden
        )
        transform = TRANSFORMS[type(t.rel)](t.rel, tuple(inputs[i] for i in t.inputs), output)
        transforms[t.output] = transform
        if isinstance(transform, ValuesTransform):
            initial_changes[t.output] = transform.initial_rows()
        if isinstance(transform, ImportedView):
            name = transform.import_.changes_name
            inputs[name] = replace(inputs[name], layout=transform.changes_layout)
            initial_rows = _initial_rows(transform.import_)
            if initial_rows is not None:
                initial_changes[name] = transform.initial_changes(initial_rows)
        shown_bottoms = domains.shown_rows.bottom_row(ref)
        inputs[t.output] = InputRelation(
            t.output, transform.layout, output.type, output.bottoms, shown_bottoms, transform
        )
    reads = {t.output: t.inputs for t in graph.transforms}
    return Kernels(inputs, transforms, reads, find_expiry_rules(graph, inputs, transforms), initial_changes)


# ── imports ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=256)
def compile_export(import_: mmpl.ImportDef) -> Kernels:
    """The transforms that compute an imported view at the exporting broker."""
    program = import_.exporting_program
    graph = build_graph(program, exporting_analysis(import_)).for_views([import_.relation_name])
    return compile_graph(graph, program.log_streams)


def _compile_imported(rel: mmpl.Imported, _: tuple[InputRelation, ...], output: OutputRelation) -> Transform:
    return ImportedView(rel, output, compile_export(rel.source).inputs[rel.source.relation_name])


def _initial_rows(import_: mmpl.ImportDef) -> Delta | None:
    """The rows that the exporting broker has before any event, such as that of an aggregate without groups."""
    kernels = compile_export(import_)
    horizons = {name: HORIZON_MIN for name, source in kernels.inputs.items() if source.transform is None}
    advance = HorizonAdvance(horizons, horizons)
    deltas = dict(kernels.initial_changes)
    for name, transform in kernels.transforms.items():
        _, delta = transform.step(transform.empty_state(), [deltas.get(i) for i in kernels.reads[name]], advance)
        if delta is not None and len(delta):
            deltas[name] = delta
    return deltas.get(import_.relation_name)


# ── operators ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _unary(compile_: Callable[[Any, InputRelation, OutputRelation], Transform]) -> Compiler:
    return lambda rel, inputs, output: compile_(rel, inputs[0], output)


def _binary(compile_: Callable[[Any, InputRelation, InputRelation, OutputRelation], Transform]) -> Compiler:
    return lambda rel, inputs, output: compile_(rel, inputs[0], inputs[1], output)


def _compile_join(rel: mmpl.Join, left: InputRelation, right: InputRelation, output: OutputRelation) -> Transform:
    if rel.kind in ("semi", "anti", "match"):
        return SemiJoin(rel, left, right, output)
    return compile_join(rel, left, right, output)


def _compile_window(rel: mmpl.Window, source: InputRelation, output: OutputRelation) -> Transform:
    return LastTransform(rel, source, output) if rel.kind == "last" else HopTransform(rel, source, output)


TRANSFORMS: Final[Mapping[type[mmpl.Rel], Compiler]] = {
    mmpl.RelationRef: _unary(lambda _, source, output: IdentityTransform(source, output)),
    mmpl.Imported: _compile_imported,
    mmpl.Values: lambda rel, _inputs, _output: ValuesTransform(rel),
    mmpl.Restrict: _unary(RestrictTransform),
    mmpl.Project: _unary(lambda _, source, output: ProjectTransform(source, output)),
    mmpl.Extend: _unary(ExtendTransform),
    mmpl.Rename: _unary(RenameTransform),
    mmpl.Join: _binary(_compile_join),
    mmpl.Asof: _binary(AsofJoin),
    mmpl.Summarize: _unary(compile_summarize),
    mmpl.Distinct: _unary(lambda _, source, output: compile_distinct(source, output)),
    mmpl.Best: _unary(BestTransform),
    mmpl.Window: _unary(_compile_window),
    mmpl.Ungroup: _unary(UngroupTransform),
    mmpl.Session: _unary(SessionTransform),
    mmpl.Over: _unary(OverTransform),
    mmpl.OverRows: _unary(OverRowsTransform),
    mmpl.Silence: _unary(SilenceTransform),
    mmpl.Merge: UnionTransform,
    mmpl.Union: UnionTransform,
}
"""The transform of each operator."""


# ── permanently hidden rows ─────────────────────────────────────────────────────────────────────────────────────────


def _relations_with_permanently_hidden(graph: KnowledgeGraph, analysis: TypeAnalysis) -> set[str]:
    """Relations that have a reader which distinguishes permanently hidden rows from absent ones.

    A reader does so if such a row shows that no other row can come: it is the only one that can match, or the only
    member of its group. If rows are sealed on arrival, the seal already implies this. For a grouped relation it can be
    enough that its group rows are reported; `with_hidden_members` are those that also need their permanently hidden
    members.
    """
    with_permanently_hidden: set[str] = set()
    with_hidden_members: set[str] = set()
    for transform in reversed(graph.transforms):
        is_grouped = operator_of(transform.rel).stores_groups
        for position, name in enumerate(transform.inputs):
            is_single_member = _has_single_member_groups(graph, name, analysis)
            is_needed = _needs_permanently_hidden(transform, position, name, analysis, is_single_member)
            if is_needed or (transform.output in (with_hidden_members if is_grouped else with_permanently_hidden)):
                with_permanently_hidden.add(name)
            if (
                is_needed and (is_single_member or not _has_defaults(transform.rel, name, analysis))
            ) or transform.output in with_hidden_members:
                with_hidden_members.add(name)
    return with_permanently_hidden


def _has_defaults(rel: mmpl.Rel, name: str, analysis: TypeAnalysis) -> bool:
    """Whether the reader gets the same default row for a group that has only permanently hidden members as for an
    absent group."""
    is_semi_join = isinstance(rel, mmpl.Join) and rel.kind in ("semi", "anti", "match")
    return (
        isinstance(rel, mmpl.Join) and not is_semi_join and analysis.relation_type(mmpl.RelationRef(name)).heading.total
    )


def _has_single_member_groups(graph: KnowledgeGraph, name: str, analysis: TypeAnalysis) -> bool:
    """Whether the relation is total and each of its groups has a single member. Then a present group cannot get another
    member, but an absent group, which has a default row, can still get its member. Not if the groups are by the tick of
    rows that are sealed on arrival: the horizon then seals the default row too."""
    transform = graph.transform_by_output.get(name)
    if transform is None or not analysis.relation_type(mmpl.RelationRef(name)).heading.total:
        return False
    if isinstance(transform.rel, mmpl.Summarize):
        source = analysis.relation_type(mmpl.RelationRef(transform.inputs[0]))
        per = transform.rel.per
        is_default_sealed = source.is_sealed_on_arrival and source.heading.tick[0] in per
        return membership(source, per).is_single and not is_default_sealed
    return any(_has_single_member_groups(graph, source, analysis) for source in transform.inputs)


def _needs_permanently_hidden(
    transform: TransformObject, position: int, name: str, analysis: TypeAnalysis, is_single_member: bool
) -> bool:
    rel, type_ = transform.rel, analysis.relation_type(mmpl.RelationRef(name))
    if isinstance(rel, mmpl.Join):
        on = [pair[position] for pair in rel.on]
        is_implied_by_seal = rel.kind == "inner" or _is_sealed_when_looked_up(rel, position, type_, analysis)
        return (is_single_member or not is_implied_by_seal) and is_key_equated(type_.heading, on)
    if type_.is_sealed_on_arrival:
        return False
    match rel:
        case mmpl.Summarize():
            return membership(type_, rel.per).is_single
        case mmpl.Distinct():
            return membership(type_, analysis.relation_type(mmpl.RelationRef(transform.output)).heading.key).is_single
    return False


def _is_sealed_when_looked_up(rel: mmpl.Join, position: int, type_: RelationType, analysis: TypeAnalysis) -> bool:
    """Whether a row of the other side is sealed against this side as soon as the row that it looks up is present."""
    sides = analysis.relation_type(rel.left), analysis.relation_type(rel.right)
    other = sides[1 - position]
    constraints = match_constraints(rel, *sides)
    fixed = [c for c, t in other.columns.items() if not t.evolves]
    equated_columns = {pair[position]: pair[1 - position] for pair in rel.on}
    tick = type_.heading.tick[:1]
    wanted = Seal.from_column(equated_columns[tick[0]]) if tick and tick[0] in equated_columns else Seal.NEVER
    is_sealed = all(constraints.express_seal(seal, fixed) == wanted for seal in type_.seals.values())
    return type_.is_sealed_on_arrival and not wanted.is_never and is_sealed
