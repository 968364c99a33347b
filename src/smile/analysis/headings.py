"""The headings of all relational expressions of a program. Only a valid expression has one."""

from collections.abc import Mapping

from smile.algebra import mmpl
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
        headings = cls({s.name: stream_heading(s) for s in program.streams})
        for stream in program.streams:
            for check in stream.checks:
                expect_type(check, BOOL, headings.relations[stream.name].columns)
        for view in program.views:
            headings.relations[view.name] = headings.heading_of(view.body)
        return headings

    def heading_of(self, rel: mmpl.Rel) -> Heading:
        heading = self._cache.get(rel)
        if heading is None:
            heading = self._cache[rel] = operator_of(rel).heading(rel, self)
        return heading

    def named_heading(self, ref: mmpl.RelationRef) -> Heading:
        if ref.name not in self.relations:
            hint = did_you_mean(ref.name, self.relations)
            raise error("E021", f"there is no stream or view {ref.name}", ref.span, hint)
        return self.relations[ref.name]
