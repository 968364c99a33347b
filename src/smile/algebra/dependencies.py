"""Orders views and domains by their dependencies."""

from collections.abc import Callable, Mapping, Sequence


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
