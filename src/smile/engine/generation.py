"""Generations: sets of views that were added to a program together. After creation a generation can only lose views.

Its state layout is a function of its text (`to_json`), so any process that has the text can resume from the state.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from smile.algebra import mmpl
from smile.algebra.parser import parse_program
from smile.algebra.printer import print_program
from smile.analysis.check import check_program
from smile.analysis.type_analysis import TypeAnalysis
from smile.engine.plan import Plan, build_plan
from smile.graph.build import build_graph
from smile.kernels.transform import InputRelation
from smile.source import Source

Json = dict[str, Any]


@dataclass(frozen=True)
class Generation:
    """Views that were added together. They share transforms with each other, but not with other generations.

    `compiled_views` never changes, so that names and state tables stay the same. `views` are those that are still
    subscribed to, and `materialized_views` are those whose rows are stored."""

    name: str
    program: mmpl.Program
    compiled_views: tuple[str, ...]
    views: tuple[str, ...]
    materialized_views: tuple[str, ...]

    def plan(self, partitions: int) -> Plan:
        graph = build_graph(self.program, TypeAnalysis(self.program)).for_views(self.compiled_views)
        return build_plan(graph, self.program.log_streams, partitions, self.materialized_views).restrict_to(self.views)

    def inputs(self) -> dict[str, InputRelation]:
        """The type and layout of each view."""
        kernels = self.plan(1).kernels
        return {view: kernels.inputs[view] for view in self.views}

    def find_reduced(self, candidates: Sequence["Generation"]) -> "Generation | None":
        """The candidate that is this generation, possibly with fewer views; None if there is none."""
        return next((c for c in candidates if c.name == self.name and self.contains(c)), None)

    def contains(self, other: "Generation") -> bool:
        """Whether the state of this generation includes that of the other one: it is compiled from the same views."""
        return (
            {*other.views} <= {*self.views}
            and {*other.materialized_views} <= {*self.materialized_views}
            and self.compiled_views == other.compiled_views
            and self._program_text == other._program_text
        )

    @cached_property
    def _program_text(self) -> str:
        return print_program(self.program)

    def separate(self, views: Sequence[str]) -> "Generation":
        """A generation of its own with only these views. If there are no others, it is this generation."""
        chosen = tuple(view for view in self.views if view in views)
        if chosen == self.views:
            return self
        name = hashlib.sha256(repr((self.name, chosen)).encode()).hexdigest()[:12]
        materialized = tuple(view for view in self.materialized_views if view in views)
        return replace(self, name=name, views=chosen, materialized_views=materialized)

    def without_views(self, views: Sequence[str]) -> "Generation | None":
        """The same generation with fewer views; None if no view remains."""
        remaining, materialized = (
            tuple(view for view in names if view not in views) for names in (self.views, self.materialized_views)
        )
        return replace(self, views=remaining, materialized_views=materialized) if remaining else None

    def to_json(self) -> Json:
        return {
            "name": self.name,
            "program": self._program_text,
            "compiled": list(self.compiled_views),
            "wanted": list(self.views),
            "kept": list(self.materialized_views),
        }

    @staticmethod
    def from_json(fields: Json) -> "Generation":
        program = check_program(parse_program(Source("state.mmpl", fields["program"])))
        views = (tuple(fields[name]) for name in ("compiled", "wanted", "kept"))
        return Generation(fields["name"], program, *views)


def remaining_generations(generations: Sequence[Generation], views: Sequence[str]) -> tuple[Generation, ...]:
    """The generations without these views; those without any view are omitted."""
    return tuple(reduced for generation in generations if (reduced := generation.without_views(views)) is not None)
