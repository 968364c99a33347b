"""A knowledge graph's transforms, compiled: each knows the layouts of what it reads, and its columns' domains."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_types
from smile.algebra.heading import whole_key_equated
from smile.graph.objects import Graph, TransformObject
from smile.kernels.best import Best
from smile.kernels.distinct import distinct
from smile.kernels.forget import KEYS, Forgetful, forgetful
from smile.kernels.groups import summarize
from smile.kernels.joins.asof import AsOf
from smile.kernels.joins.choose import compile_join
from smile.kernels.joins.exists import Exists
from smile.kernels.last import Last
from smile.kernels.layout import Layout
from smile.kernels.over import Over
from smile.kernels.rows import Extend, Project, Rename, Restrict, Same, Together, Windows
from smile.kernels.shown import Shown
from smile.kernels.silence import Silence
from smile.kernels.transform import Input, Output, Transform
from smile.knowledge.aggregate_types import membership
from smile.knowledge.analysis import Analysis
from smile.knowledge.domains import Domains
from smile.knowledge.join_types import match_ties
from smile.knowledge.seals import Seal
from smile.knowledge.types import RelationType
from smile.state.run import Shape


@dataclass(frozen=True)
class Kernels:
    """By the relation that each makes, in an order in which each comes after those it reads from."""

    inputs: Mapping[str, Input]
    transforms: Mapping[str, Transform]
    reads: Mapping[str, tuple[str, ...]]
    forgetful: tuple[Forgetful, ...] = ()
    """What else may be forgotten, once a frame has gone through."""

    @cached_property
    def shapes(self) -> dict[str, Mapping[str, Shape]]:
        """Of all tables, by who remembers them and the names they have there."""
        own = {name: t.shapes for name, t in self.transforms.items() if t.shapes}
        return {**own, **{f.name: {KEYS: f.shape} for f in self.forgetful}}

    def keeping(self, views: Iterable[str]) -> "Kernels":
        """The same, and the rows that these views show are remembered, under `shown(view)`."""
        kept = {shown(view): Shown(self.inputs[view]) for view in views}
        reads = {**self.reads, **{shown(view): (view,) for view in views}}
        return replace(self, transforms={**self.transforms, **kept}, reads=reads)


def shown(view: str) -> str:
    return f"{view} shown"


def compile_graph(graph: Graph, streams: tuple[mmpl.StreamDef, ...]) -> Kernels:
    # Every relation of the graph has a name, so the graph is itself a program of one operator a view.
    views = tuple(mmpl.ViewDef(t.output, t.rel) for t in graph.transforms)
    flat = mmpl.Program(streams, views, graph.subscriptions)
    analysis = Analysis(flat)
    domains = Domains(flat, analysis)
    heeded = _heeded(graph, analysis)
    inputs: dict[str, Input] = {}
    for stream in streams:
        ref = mmpl.Ref(stream.name)
        layout = Layout((stream.tick,), stream_types(stream), certain=True)
        inputs[stream.name] = Input(stream.name, layout, analysis.of(ref), domains.of(ref), None)
    transforms: dict[str, Transform] = {}
    for t in graph.transforms:
        ref = mmpl.Ref(t.output)
        output = Output(t.output, analysis.of(ref), domains.of(ref), t.output in heeded)
        found = compile_transform(t.rel, tuple(inputs[i] for i in t.inputs), output)
        transforms[t.output] = found
        inputs[t.output] = Input(t.output, found.layout, output.type, output.bottoms, found)
    reads = {t.output: t.inputs for t in graph.transforms}
    return Kernels(inputs, transforms, reads, forgetful(graph, inputs, transforms))


def compile_transform(rel: mmpl.Rel, sources: tuple[Input, ...], output: Output) -> Transform:
    source = sources[0]
    match rel:
        case mmpl.Ref():
            return Same(source, output)
        case mmpl.Restrict():
            return Restrict(rel, source, output)
        case mmpl.Extend():
            return Extend(rel, source, output)
        case mmpl.Project():
            return Project(source, output)
        case mmpl.Rename():
            return Rename(rel, source, output)
        case mmpl.Merge() | mmpl.Union():
            return Together(rel, sources, output)
        case mmpl.Window(kind="tumble" | "hop"):
            return Windows(rel, source, output)
        case mmpl.Best():
            return Best(rel, source, output)
        case mmpl.Over():
            return Over(rel, source, output)
        case mmpl.Window(kind="last"):
            return Last(rel, source, output)
        case mmpl.Silence():
            return Silence(rel, source, output)
        case mmpl.Join(kind="semi" | "anti" | "match"):
            return Exists(rel, source, sources[1], output)
        case mmpl.Join():
            return compile_join(rel, source, sources[1], output)
        case mmpl.Asof():
            return AsOf(rel, source, sources[1], output)
        case mmpl.Summarize():
            return summarize(rel, source, output)
        case mmpl.Distinct():
            return distinct(source, output)
    raise NotImplementedError(type(rel).__name__)


# ── rows that are hidden for good ───────────────────────────────────────────────────────────────────────────────────


def _heeded(graph: Graph, analysis: Analysis) -> set[str]:
    """Relations of which a reader tells a row that is hidden for good from one nobody has heard of.

    A reader does that where such a row shows that no other can come: it was the only one that could match, or the only
    member of its group. Where rows are sealed as soon as they are heard of, the seal says as much. Of a group it may be
    enough that its row is heeded, though its `members` are not.
    """
    found: set[str] = set()
    members: set[str] = set()
    for transform in reversed(graph.transforms):
        grouped = isinstance(transform.rel, mmpl.Summarize | mmpl.Distinct)
        for position, name in enumerate(transform.inputs):
            alone = _is_of_one_member(graph, name, analysis)
            own = _is_heeded_by(transform, position, name, analysis, alone)
            if own or (transform.output in (members if grouped else found)):
                found.add(name)
            if (own and (alone or not _has_defaults(transform.rel, name, analysis))) or transform.output in members:
                members.add(name)
    return found


def _has_defaults(rel: mmpl.Rel, name: str, analysis: Analysis) -> bool:
    """Whether a group that has only members hidden for good is no other than one nobody has heard of."""
    tests = isinstance(rel, mmpl.Join) and rel.kind in ("semi", "anti", "match")
    return isinstance(rel, mmpl.Join) and not tests and analysis.of(mmpl.Ref(name)).heading.total


def _is_of_one_member(graph: Graph, name: str, analysis: Analysis) -> bool:
    """Whether it is total, and its groups have but one member each: then a group that has been heard of has no other,
    while its default row may yet get one."""
    transform = graph.transform_of.get(name)
    if transform is None or not analysis.of(mmpl.Ref(name)).heading.total:
        return False
    if isinstance(transform.rel, mmpl.Summarize):
        source = analysis.of(mmpl.Ref(transform.inputs[0]))
        return membership(source, transform.rel.per).single and not _is_sealed_when_heard(source)
    return any(_is_of_one_member(graph, source, analysis) for source in transform.inputs)


def _is_heeded_by(transform: TransformObject, position: int, name: str, analysis: Analysis, alone: bool) -> bool:
    rel, type_ = transform.rel, analysis.of(mmpl.Ref(name))
    if isinstance(rel, mmpl.Join):
        on = [pair[position] for pair in rel.on]
        is_told = rel.kind == "inner" or _is_sealed_when_asked(rel, position, type_, analysis)
        return (alone or not is_told) and whole_key_equated(type_.heading, on)
    if _is_sealed_when_heard(type_):
        return False
    match rel:
        case mmpl.Summarize():
            return membership(type_, rel.per).single
        case mmpl.Distinct():
            return membership(type_, analysis.of(mmpl.Ref(transform.output)).heading.key).single
    return False


def _is_sealed_when_asked(rel: mmpl.Join, position: int, type_: RelationType, analysis: Analysis) -> bool:
    """Whether a row of the other side is sealed against this one as soon as the row that it asks for is heard of."""
    sides = analysis.of(rel.left), analysis.of(rel.right)
    other = sides[1 - position]
    ties = match_ties(rel, *sides)
    fixed = [c for c, t in other.columns.items() if not t.evolves]
    asking = {pair[position]: pair[1 - position] for pair in rel.on}
    tick = type_.heading.tick[:1]
    wanted = Seal.of(asking[tick[0]]) if tick and tick[0] in asking else Seal.NEVER
    sealed = all(ties.express(seal, fixed) == wanted for seal in type_.seals.values())
    return _is_sealed_when_heard(type_) and not wanted.is_never and sealed


def _is_sealed_when_heard(type_: RelationType) -> bool:
    tick = type_.heading.tick
    return bool(tick) and all(seal == Seal.of(tick[0]) for seal in type_.seals.values())
