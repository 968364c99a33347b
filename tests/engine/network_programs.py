"""Programs cut into several brokers: what one computes, others import. Everything runs in this process, with the
product's views, frames, caches and logs, and without a network.

An exporting broker is ahead of what it has sent, and each import is sent for itself. So imports of a program that go
back to the same stream know it up to different ticks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from smile.algebra import mmpl, trees
from smile.algebra.types import BOOL, INT, TIME
from smile.analysis.export_description import describe_export, read_definition
from smile.analysis.imports import check_import
from smile.analysis.type_analysis import TypeAnalysis
from smile.errors import SmileError
from tests.random_programs import STREAMS
from tests.reference.histories import names_read


class NotImportableError(Exception):
    """A view that a program reads cannot be imported."""


@dataclass(frozen=True)
class BrokerProgram:
    """`sources` says for each import which of the other programs it comes from."""

    program: mmpl.Program
    sources: dict[str, int]


def cut_program(program: mmpl.Program, random: Random, brokers: int) -> list[BrokerProgram]:
    """The views of a program on several brokers, the earlier ones first. The first broker has the streams. Each broker
    imports what it reads of others, sometimes under two names."""
    views = program.views
    ends = sorted(random.sample(range(1, len(views)), min(brokers, len(views)) - 1))
    parts = [views[a:b] for a, b in zip([0, *ends], [*ends, len(views)], strict=True)]
    programs = [BrokerProgram(mmpl.Program(program.streams, parts[0], tuple(v.name for v in parts[0])), {})]
    for part in parts[1:]:
        programs.append(_ImportingProgram(programs, random).draw(part))
    return programs


class _ImportingProgram:
    """Draws the program of a broker that imports from earlier ones."""

    def __init__(self, programs: Sequence[BrokerProgram], random: Random) -> None:
        self.programs, self.random = programs, random
        self.imports: dict[str, mmpl.ImportDef] = {}
        self.sources: dict[str, int] = {}
        self.defined: set[str] = set()

    def draw(self, views: Sequence[mmpl.ViewDef]) -> BrokerProgram:
        own_views = []
        for view in views:
            own_views.append(replace(view, body=trees.rebuild_relation(view.body, self._redirect)))
            self.defined.add(view.name)
        if not any(names_read(v.body) & {n for n, i in self.imports.items() if i.stream is None} for v in own_views):
            name = self.programs[-1].program.views[-1].name
            body = mmpl.Restrict(self._redirect(mmpl.RelationRef(name)), mmpl.Constant(True, BOOL))
            own_views.append(mmpl.ViewDef(f"of_{name}_{len(self.programs)}", body))
        own_views += self._lookups()
        subscriptions = (*(v.name for v in own_views), *self.imports)
        program = mmpl.Program((), tuple(own_views), subscriptions, tuple(self.imports.values()))
        return BrokerProgram(program, self.sources)

    def _lookups(self) -> Iterator[mmpl.ViewDef]:
        """Events with the group of an imported total relation that they refer to, whether it has members or not."""
        for source in self.programs:
            for view in source.program.views:
                type_ = TypeAnalysis(source.program).relations[view.name]
                key = type_.heading.key
                columns = {"t": TIME, **dict(STREAMS[0].columns)}
                alike = [c for c, data in columns.items() if len(key) == 1 and data == type_.heading.columns[key[0]]]
                if not type_.heading.total or not alike or self.random.random() < 0.3:
                    continue
                try:
                    groups = self._redirect(mmpl.RelationRef(view.name))
                except NotImportableError:
                    continue
                events = self._redirect(mmpl.RelationRef(self.random.choice(("A", "B", "C"))))
                renamed = mmpl.Rename(groups, tuple((c, f"{c} of group") for c in type_.heading.columns))
                kind: mmpl.JoinKind = self.random.choice(("inner", "left"))
                body = mmpl.Join(kind, events, renamed, ((self.random.choice(alike), f"{key[0]} of group"),))
                yield mmpl.ViewDef(f"with_{view.name}_{len(self.programs)}", body)

    def _redirect(self, rel: mmpl.Rel) -> mmpl.Rel:
        """A reference to an earlier broker's relation becomes a reference to an import."""
        if not isinstance(rel, mmpl.RelationRef) or rel.name in self.defined:
            return rel
        alias = rel.name if self.random.random() < 0.7 else f"{rel.name}_again"
        if alias not in self.imports:
            self._add_import(rel.name, alias)
        return mmpl.RelationRef(alias)

    def _add_import(self, relation: str, alias: str) -> None:
        """From the broker that defines it, or from one in between that has imported it."""
        holders = [n for n, p in enumerate(self.programs) if any(d.name == relation for d in p.program.definitions)]
        source = self.random.choice(holders)
        definition = read_definition(describe_export(self.programs[source].program, relation), relation)
        condition = draw_condition(self.random, definition, relation, whole=0.8)
        import_ = mmpl.ImportDef(alias, f"broker{source}", relation, condition, definition)
        try:
            check_import(import_)
        except SmileError:
            raise NotImportableError(relation) from None
        self.imports[alias], self.sources[alias] = import_, source


def draw_condition(random: Random, definition: mmpl.Program, relation: str, whole: float) -> mmpl.Expr | None:
    """For the import of a relation: sometimes only rows with a value in a fixed column, or without one. The probability
    of all rows is `whole`. A total relation is imported as a whole, so that joins find its default rows."""
    type_ = TypeAnalysis(definition).relations[relation]
    fixed = [c for c in type_.heading.visible if not type_.columns[c].evolves]
    if type_.heading.total or not fixed or random.random() < whole:
        return None
    column = random.choice(fixed)
    if type_.columns[column].data not in (INT, TIME):
        return mmpl.Call("is not null", (mmpl.ColumnRef(column),))
    limit = mmpl.Constant(random.choice((0, 1, 3)), type_.columns[column].data)
    return mmpl.Call(random.choice((">", "<=")), (mmpl.ColumnRef(column), limit))


def base_streams(programs: Sequence[BrokerProgram], number: int) -> dict[str, str]:
    """For each stream of a broker's history, as `reference.history` names them: the published stream that it is."""
    return dict(_base_streams(programs, number))


def _base_streams(programs: Sequence[BrokerProgram], number: int) -> Iterator[tuple[str, str]]:
    program, sources = programs[number].program, programs[number].sources
    for stream in program.streams:
        yield stream.name, stream.name
    for import_ in program.imports:
        exported = base_streams(programs, sources[import_.name])
        if import_.stream is not None:
            yield import_.stream.name, exported[import_.relation]
        else:
            yield from ((import_.horizon_name(s), exported[s]) for s in import_.base_streams)
