"""The knowledge graph: relation objects, and transform objects that keep one relation up to date from others.

Every transform reads only relations that come before it. Equal expressions of all views are one transform.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from smile.algebra import mmpl
from smile.knowledge.state_retention import StateRetention
from smile.knowledge.types import RelationType


@dataclass(frozen=True)
class RelationObject:
    """`storage_reason` says why its rows are stored; None if its deltas only pass through. `view` is its stream or
    view; an intermediate result has the view that it is part of. `broker` is the one that it is imported from.

    `changes` are the row changes of an import, as they are logged. Its rows follow from them."""

    name: str
    kind: Literal["stream", "changes", "import", "view", "shared", "between"]
    type: RelationType
    subscribed: bool
    storage_reason: str | None
    view: str
    broker: str | None = None

    @property
    def is_logged(self) -> bool:
        """Whether the pipeline reads it from the log."""
        return self.kind in ("stream", "changes")

    @property
    def is_named(self) -> bool:
        """Whether the program, or the compiler, has given it a name that users know."""
        return self.kind not in ("changes", "between")


@dataclass(frozen=True)
class TransformObject:
    """`rel` is the operator over its inputs by name; `operator` is the same as a line of MMPL, without the inputs.
    `early_finals` says which of its columns are final before the row is sealed."""

    output: str
    inputs: tuple[str, ...]
    rel: mmpl.Rel
    operator: str
    state: tuple[StateRetention, ...]
    early_finals: tuple[str, ...] = ()


@dataclass(frozen=True)
class KnowledgeGraph:
    """In `transforms`, each comes after those it reads from."""

    relations: dict[str, RelationObject]
    transforms: tuple[TransformObject, ...]
    subscriptions: tuple[str, ...]

    @cached_property
    def transform_by_output(self) -> Mapping[str, TransformObject]:
        """The transform that computes each relation. Streams have none."""
        return {t.output: t for t in self.transforms}

    def remembered_state(self, view: str) -> list[StateRetention]:
        """The state of the transforms that compute a view, nearest to the streams first."""
        return [s for t in self.transforms if self.relations[t.output].view == view for s in t.state]

    def early_finals(self, view: str) -> list[str]:
        """The columns of a view that are final before their row is sealed, and when."""
        return [text for t in self.transforms if self.relations[t.output].view == view for text in t.early_finals]

    def for_views(self, views: Sequence[str]) -> "KnowledgeGraph":
        """The part of the graph that computes these views, and all that is logged. Only these views are subscribed
        to."""
        needed = {name for view in views for name in self.upstream_relations(view)}
        relations = {n: replace(r, subscribed=n in views) for n, r in self.relations.items() if n in needed}
        logged = {n: replace(r, subscribed=n in views) for n, r in self.relations.items() if r.is_logged}
        transforms = tuple(t for t in self.transforms if t.output in needed)
        return KnowledgeGraph({**logged, **relations}, transforms, tuple(views))

    def upstream_relations(self, relation: str) -> list[str]:
        """The relations that a relation is computed from, streams first, itself last."""
        needed = {relation}
        for transform in reversed(self.transforms):
            if transform.output in needed:
                needed.update(transform.inputs)
        return [name for name in self.relations if name in needed]
