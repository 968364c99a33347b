"""Generations: views that came to a program together, as they run. A generation never changes but by being wanted less.

It follows from its text what is remembered for it, so that whoever has the text goes on from the state.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from smile.algebra import mmpl
from smile.algebra.check import check_program
from smile.algebra.parser import parse_program
from smile.algebra.printer import print_program
from smile.engine.plan import Plan, build_plan
from smile.graph.build import build_graph
from smile.kernels.transform import InputRelation
from smile.knowledge.analysis import TypeAnalysis
from smile.source import Source

Json = dict[str, Any]


@dataclass(frozen=True)
class Generation:
    """Views that were added together: they share transforms with one another, and none with other generations. Those of
    `program`, as it runs, that are `compiled` are not fewer when less are `wanted`. `kept` are the ones whose rows are
    remembered."""

    name: str
    program: mmpl.Program
    compiled_views: tuple[str, ...]
    views: tuple[str, ...]
    stored_views: tuple[str, ...]

    def plan(self, partitions: int) -> Plan:
        graph = build_graph(self.program, TypeAnalysis(self.program)).for_views(self.compiled_views)
        return build_plan(graph, self.program.streams, partitions, self.stored_views).restrict_to(self.views)

    def inputs(self) -> dict[str, InputRelation]:
        """What its views look like."""
        kernels = self.plan(1).kernels
        return {view: kernels.inputs[view] for view in self.views}

    def find_reduced(self, candidates: Sequence["Generation"]) -> "Generation | None":
        """The same as it is among these, where it may be wanted less."""
        for candidate in candidates:
            is_subset = {*candidate.views} <= {*self.views} and {*candidate.stored_views} <= {*self.stored_views}
            if (
                is_subset
                and replace(self, views=candidate.views, stored_views=candidate.stored_views).to_json()
                == candidate.to_json()
            ):
                return candidate
        return None

    def to_json(self) -> Json:
        return {
            "name": self.name,
            "program": print_program(self.program),
            "compiled": list(self.compiled_views),
            "wanted": list(self.views),
            "kept": list(self.stored_views),
        }

    @staticmethod
    def from_json(fields: Json) -> "Generation":
        program = check_program(parse_program(Source("state.mmpl", fields["program"])))
        views = (tuple(fields[name]) for name in ("compiled", "wanted", "kept"))
        return Generation(fields["name"], program, *views)
