"""Sharing: equal sub-expressions of all views become one. What equals a whole view is that view; what several places
have in common otherwise gets a name of its own (LET)."""

from collections import Counter
from dataclasses import replace

from smile.algebra import mmpl, trees


def share_expressions(program: mmpl.Program) -> mmpl.Program:
    return _ExpressionSharing(program).share()


class _ExpressionSharing:
    """Works on the views as one graph in which equal expressions are the same node: a node deserves a name if more
    than one place reads it. What is only read inside a larger shared expression is not one of them."""

    def __init__(self, program: mmpl.Program) -> None:
        self.source = program
        self.readers: Counter[mmpl.Rel] = Counter()
        self.names: dict[mmpl.Rel, str] = {}
        self.views: list[mmpl.ViewDef] = []
        self.used_names = {s.name for s in program.streams} | {v.name for v in program.views}
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
