"""The headings of all relational expressions of a program. Only a valid expression has one."""

from collections.abc import Mapping
from functools import lru_cache

from smile.algebra import mmpl, trees
from smile.algebra.functions.catalogue import expect_type
from smile.algebra.heading import Heading, stream_heading
from smile.algebra.types import BOOL
from smile.errors import did_you_mean, error
from smile.operators.catalogue import operator_of


class Headings:
    """Each heading is computed once."""

    def __init__(self, relations: Mapping[str, Heading] | None = None) -> None:
        self.relations = dict(relations or {})
        self._cache: dict[mmpl.Rel, Heading] = {}

    @classmethod
    def from_program(cls, program: mmpl.Program) -> "Headings":
        headings = cls.of_inputs(program)
        for stream in program.input_streams:
            for check in stream.checks:
                expect_type(check, BOOL, headings.relations[stream.name].columns)
        for view in program.views:
            headings.relations[view.name] = headings.heading_of(view.body)
        return headings

    @classmethod
    def of_inputs(cls, program: mmpl.Program) -> "Headings":
        """Only those of streams and imports."""
        headings = cls({s.name: stream_heading(s) for s in program.input_streams})
        for view in program.imported_views:
            headings.relations[view.name] = headings.heading_of(view.body)
        return headings

    def heading_of(self, rel: mmpl.Rel) -> Heading:
        """Computes the headings of the inputs first: the operators ask for them, and would recurse over long chains."""
        if rel not in self._cache:
            missing, stack = list[mmpl.Rel](), [rel]
            while stack:
                missing.append(node := stack.pop())
                stack += [i for i in trees.inputs_of(node) if i not in self._cache]
            for node in reversed(missing):
                self._cache[node] = operator_of(node).heading(node, self)
        return self._cache[rel]

    def named_heading(self, ref: mmpl.RelationRef) -> Heading:
        if ref.name not in self.relations:
            hint = did_you_mean(ref.name, self.relations)
            raise error("E021", f"there is no stream or view {ref.name}", ref.span, hint)
        return self.relations[ref.name]

    def imported_heading(self, rel: mmpl.Imported) -> Heading:
        return exporting_headings(rel.source).relations[rel.source.relation_name]


@lru_cache(maxsize=1024)
def exporting_headings(import_: mmpl.ImportDef) -> Headings:
    """The headings of the program that the import is defined in."""
    return Headings.from_program(import_.exporting_program)
