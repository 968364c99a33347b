"""The order of views: each after those it reads."""

from collections.abc import Callable, Mapping, Sequence


def in_order(reads: Mapping[str, Sequence[str]], circle: Callable[[list[str]], None]) -> list[str]:
    """Names so that each comes after what it reads, and otherwise in their own order.

    `circle` is told of each circle, as the path from a name back to itself.
    """
    order: list[str] = []
    done: dict[str, bool] = {}
    for root in reads:
        if root in done:
            continue
        done[root] = False
        stack = [(root, iter(reads[root]))]
        while stack:
            name, rest = stack[-1]
            child = next(rest, None)
            if child is None:
                done[name] = True
                order.append(name)
                stack.pop()
            elif child not in done:
                done[child] = False
                stack.append((child, iter(reads[child])))
            elif not done[child]:
                path = [n for n, _ in stack]
                circle([*path[path.index(child) :], child])
    return order
