"""Common sub-expression elimination over all views.

An expression that equals the body of a view becomes a reference to it. Other repeated expressions become shared views
(LET).
"""

from collections import Counter
from dataclasses import replace

from smile.algebra import mmpl, trees


def share_expressions(program: mmpl.Program) -> mmpl.Program:
    return _ExpressionSharing(program).share()


class _ExpressionSharing:
    """Treats the views as one graph in which equal expressions are one node. A node becomes a shared view if several
    nodes or views read it. A node that is only read within a larger shared expression has one reader."""

    def __init__(self, program: mmpl.Program) -> None:
        self.source = program
        self.readers: Counter[mmpl.Rel] = Counter()
        self.names: dict[mmpl.Rel, str] = {}
        self.views: list[mmpl.ViewDef] = []
        self.used_names = {definition.name for definition in program.definitions}
        seen: set[mmpl.Rel] = set()
        for view in program.views:
            self.readers[view.body] += 1
            stack = [view.body]
            while stack:
                node = stack.pop()
                if node not in seen:
                    seen.add(node)
                    self.readers.update(trees.inputs_of(node))
                    stack.extend(trees.inputs_of(node))

    def share(self) -> mmpl.Program:
        for view in self.source.views:
            body = view.body
            if body in self.names:
                self.views.append(replace(view, body=mmpl.RelationRef(self.names[body], span=body.span)))
                continue
            self.names[body] = view.name
            inputs = tuple(self._share(i) for i in trees.inputs_of(body))
            self.views.append(replace(view, body=trees.with_inputs(body, inputs)))
        return replace(self.source, views=tuple(self.views))

    def _share(self, rel: mmpl.Rel) -> mmpl.Rel:
        if isinstance(rel, mmpl.RelationRef):
            return rel
        if rel in self.names:
            return mmpl.RelationRef(self.names[rel], span=rel.span)
        rebuilt = trees.with_inputs(rel, tuple(self._share(i) for i in trees.inputs_of(rel)))
        if self.readers[rel] < 2:
            return rebuilt
        name = next(n for n in (f"shared_{i}" for i in range(1, len(self.used_names) + 2)) if n not in self.used_names)
        self.used_names.add(name)
        self.names[rel] = name
        self.views.append(mmpl.ViewDef(name, rebuilt, shared=True, span=rel.span))
        return mmpl.RelationRef(name, span=rel.span)
