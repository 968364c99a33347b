"""Generations: views that came to a program together, as they run. A generation never changes but by being wanted less.

It follows from its text what is remembered for it, so that whoever has the text goes on from the state.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from smile.algebra import mmpl
from smile.algebra.check import checked
from smile.algebra.parser import parse_program
from smile.algebra.printer import print_program
from smile.engine.plan import Plan, plan
from smile.graph.build import build
from smile.kernels.transform import Input
from smile.knowledge.analysis import Analysis
from smile.source import Source

Json = dict[str, Any]


@dataclass(frozen=True)
class Generation:
    """Views that were added together: they share transforms with one another, and none with other generations. Those of
    `program`, as it runs, that are `compiled` are not fewer when less are `wanted`. `kept` are the ones whose rows are
    remembered."""

    name: str
    program: mmpl.Program
    compiled: tuple[str, ...]
    wanted: tuple[str, ...]
    kept: tuple[str, ...]

    def plan(self, partitions: int) -> Plan:
        graph = build(self.program, Analysis(self.program)).for_views(self.compiled)
        return plan(graph, self.program.streams, partitions, self.kept).wanted(self.wanted)

    def inputs(self) -> dict[str, Input]:
        """What its views look like."""
        kernels = self.plan(1).kernels
        return {view: kernels.inputs[view] for view in self.wanted}

    def as_one_of(self, others: Sequence["Generation"]) -> "Generation | None":
        """The same as it is among these, where it may be wanted less."""
        for other in others:
            has_all = {*other.wanted} <= {*self.wanted} and {*other.kept} <= {*self.kept}
            if has_all and replace(self, wanted=other.wanted, kept=other.kept).to_json() == other.to_json():
                return other
        return None

    def to_json(self) -> Json:
        return {
            "name": self.name,
            "program": print_program(self.program),
            "compiled": list(self.compiled),
            "wanted": list(self.wanted),
            "kept": list(self.kept),
        }

    @staticmethod
    def from_json(found: Json) -> "Generation":
        program = checked(parse_program(Source("state.mmpl", found["program"])))
        views = (tuple(found[name]) for name in ("compiled", "wanted", "kept"))
        return Generation(found["name"], program, *views)
