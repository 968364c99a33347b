"""Dependencies of definitions: their order, and the part of a program that a relation depends on."""

from collections.abc import Callable, Mapping, Sequence

from smile.algebra import mmpl
from smile.algebra.trees import walk


def topological_order(reads: Mapping[str, Sequence[str]], on_cycle: Callable[[list[str]], None]) -> list[str]:
    """The names in an order in which each comes after those it reads, and otherwise in their given order.

    Calls `on_cycle` for each cycle, with the path from a name back to itself.
    """
    order: list[str] = []
    finished: dict[str, bool] = {}
    for root in reads:
        if root in finished:
            continue
        finished[root] = False
        stack = [(root, iter(reads[root]))]
        while stack:
            name, remaining = stack[-1]
            child = next(remaining, None)
            if child is None:
                finished[name] = True
                order.append(name)
                stack.pop()
            elif child not in finished:
                finished[child] = False
                stack.append((child, iter(reads[child])))
            elif not finished[child]:
                path = [n for n, _ in stack]
                on_cycle([*path[path.index(child) :], child])
    return order


def relations_read(rel: mmpl.Rel) -> list[str]:
    """The names of the relations that an expression refers to."""
    return [node.name for node in walk(rel) if isinstance(node, mmpl.RelationRef)]


def subprogram(program: mmpl.Program, relation: str) -> mmpl.Program:
    """The part of a program that defines a relation, and a subscription to it."""
    bodies = {v.name: v.body for v in program.views}
    needed, pending = set[str](), [relation]
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending += relations_read(bodies[name]) if name in bodies else []
    return mmpl.Program(
        tuple(s for s in program.streams if s.name in needed),
        tuple(v for v in program.views if v.name in needed),
        (relation,),
        tuple(i for i in program.imports if i.name in needed),
    )
