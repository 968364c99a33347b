"""docs/reference/python.md: the public names of the Python client, from their signatures and docstrings."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import smile.client
from tools.reference.markdown import page

INTRODUCTION = """
Everything that `smile.client` exports. [The client](../client.md) is the guide, with examples that run.
"""


def client_page() -> str:
    return page("Python client", INTRODUCTION, *(_section(name) for name in smile.client.__all__))


def _section(name: str) -> str:
    exported = getattr(smile.client, name)
    parts = [f"## {name}", *_entry(name, exported)]
    if inspect.isclass(exported):
        for member_name, member in _members(exported):
            parts += [f"### {name}.{member_name}", *_entry(member_name, member)]
    return "\n\n".join(parts)


def _members(class_: type) -> Iterator[tuple[str, Any]]:
    """Documented public methods and properties, those of its own bases included, in the order of definition."""
    seen: set[str] = set()
    for owner in class_.__mro__:
        if not owner.__module__.startswith("smile."):
            continue
        for name, member in vars(owner).items():
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if name.startswith("_") or name in seen or not inspect.isfunction(function) or not function.__doc__:
                continue
            seen.add(name)
            yield name, member


def _entry(name: str, member: Any) -> list[str]:
    documentation = inspect.getdoc(member) or ""
    signature = _signature(name, member)
    return [*([f"```python\n{signature}\n```"] if signature else []), *([documentation] if documentation else [])]


def _signature(name: str, member: Any) -> str:
    if isinstance(member, property):
        return ""
    if inspect.isclass(member):
        return ""
    function = getattr(member, "__func__", member)
    prefix = "async def" if inspect.iscoroutinefunction(function) else "def"
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    text = f"{prefix} {name}{signature.replace(parameters=parameters)}"
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])", "", text)  # types without their modules
