"""Sharing: equal sub-expressions of all views become one. What equals a whole view is that view; what several places
have in common otherwise gets a name of its own (LET)."""

from collections import Counter
from dataclasses import replace

from smile.algebra import mmpl, trees


def share_expressions(program: mmpl.Program) -> mmpl.Program:
    return _Sharing(program).program()


class _Sharing:
    """Works on the views as one graph in which equal expressions are the same node: a node deserves a name if more
    than one place reads it. What is only read inside a larger shared expression is not one of them."""

    def __init__(self, program: mmpl.Program) -> None:
        self.source = program
        self.readers: Counter[mmpl.Rel] = Counter()
        self.names: dict[mmpl.Rel, str] = {}
        self.views: list[mmpl.ViewDef] = []
        self.taken = {s.name for s in program.streams} | {v.name for v in program.views}
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

    def program(self) -> mmpl.Program:
        for view in self.source.views:
            body = view.body
            if body in self.names:
                self.views.append(replace(view, body=mmpl.Ref(self.names[body], span=body.span)))
                continue
            self.names[body] = view.name
            inputs = tuple(self._shared(i) for i in trees.inputs_of(body))
            self.views.append(replace(view, body=trees.with_inputs(body, inputs)))
        return replace(self.source, views=tuple(self.views))

    def _shared(self, rel: mmpl.Rel) -> mmpl.Rel:
        if isinstance(rel, mmpl.Ref):
            return rel
        if rel in self.names:
            return mmpl.Ref(self.names[rel], span=rel.span)
        whole = trees.with_inputs(rel, tuple(self._shared(i) for i in trees.inputs_of(rel)))
        if self.readers[rel] < 2:
            return whole
        name = next(n for n in (f"shared_{i}" for i in range(1, len(self.taken) + 2)) if n not in self.taken)
        self.taken.add(name)
        self.names[rel] = name
        self.views.append(mmpl.ViewDef(name, whole, shared=True, span=rel.span))
        return mmpl.Ref(name, span=rel.span)
