"""A printer of documents: text with places where a line may break. A group is printed in one line if it fits; otherwise
all of its own line breaks become new lines.

The algorithm is Wadler's, in the form that Prettier uses.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

INDENT: Final = 2


@dataclass(frozen=True)
class Break:
    """A place where a line may break. In one line it is `flat`; with `is_forced` it is a new line always."""

    flat: str
    is_forced: bool = False


@dataclass(frozen=True)
class Nest:
    """Lines that begin within `content` are indented further."""

    content: "Document"


@dataclass(frozen=True)
class Group:
    """Either all breaks of `content` outside of inner groups become new lines, or none."""

    content: "Document"
    is_broken: bool
    """Whether it holds a forced break, so that it never fits in one line."""


Document = str | Break | Nest | Group | tuple["Document", ...]

SPACE: Final = Break(" ")
"""A space, or a new line."""
NOTHING: Final = Break("")
"""Nothing, or a new line."""
NEW_LINE: Final = Break("", is_forced=True)


def group(*parts: Document) -> Group:
    return Group(parts, _has_forced_break(parts))


def nest(*parts: Document) -> Nest:
    return Nest(parts)


def join(separator: Document, parts: Iterable[Document]) -> Document:
    joined: list[Document] = []
    for part in parts:
        joined += [separator, part] if joined else [part]
    return tuple(joined)


def _has_forced_break(document: Document) -> bool:
    match document:
        case str():
            return "\n" in document
        case Break():
            return document.is_forced
        case Nest():
            return _has_forced_break(document.content)
        case Group():
            return document.is_broken
    return any(map(_has_forced_break, document))


_Mode = Literal["flat", "broken"]
_Task = tuple[int, _Mode, Document]
"""What is still to be printed: its indentation, the mode of its group, and the document."""


def print_document(document: Document, width: int) -> str:
    printed: list[str] = []
    column = 0
    tasks: list[_Task] = [(0, "broken", document)]
    while tasks:
        indent, mode, part = tasks.pop()
        match part:
            case str():
                printed.append(part)
                newline = part.rfind("\n")
                column = column + len(part) if newline < 0 else len(part) - newline - 1
            case Break() if mode == "flat" and not part.is_forced:
                printed.append(part.flat)
                column += len(part.flat)
            case Break():
                if printed and not printed[-1].strip(" \n"):
                    printed[-1] = "\n" * printed[-1].count("\n")  # no spaces at the end of a line
                printed.append("\n" + " " * indent)
                column = indent
            case Nest():
                tasks.append((indent + INDENT, mode, part.content))
            case Group():
                flat: _Task = (indent, "flat", part.content)
                fits = not part.is_broken and _fits(flat, tasks, width - column)
                tasks.append(flat if fits else (indent, "broken", part.content))
            case _:
                tasks += [(indent, mode, inner) for inner in reversed(part)]
    return "".join(printed)


def _fits(task: _Task, following: list[_Task], room: int) -> bool:
    """Whether the task, and what follows it up to the next break, fits into the rest of the line."""
    tasks, next_following = [task], len(following)
    while room >= 0:
        if not tasks:
            if next_following == 0:
                return True
            next_following -= 1
            tasks.append(following[next_following])
        indent, mode, part = tasks.pop()
        match part:
            case str():
                first_line, newline, _ = part.partition("\n")
                room -= len(first_line)
                if newline:
                    return room >= 0
            case Break() if mode == "flat" and not part.is_forced:
                room -= len(part.flat)
            case Break():
                return True
            case Nest():
                tasks.append((indent, mode, part.content))
            case Group():
                tasks.append((indent, "broken" if part.is_broken else mode, part.content))
            case _:
                tasks += [(indent, mode, inner) for inner in reversed(part)]
    return False
