"""`smile init`: makes a project that works: a program, sample events, a test that passes, and a README. It never writes
over a file."""

from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

from smile.cli.exits import error_exit
from smile.errors import SmileError, error

DOT_FILES = {"gitignore": ".gitignore"}
"""Names of templates that would mean something where the templates are."""


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of the project: a new one, or an empty one.")
    ],
) -> None:
    """Make a project: a program, sample events, a test that passes, and a README whose commands work.

    A folder with nothing but a Git repository counts as empty.

    Example: smile init shop
    """
    try:
        _check_empty(folder)
        names = _write_project(folder)
    except OSError as problem:
        raise error_exit(error("E170", f"{problem.filename or folder}: {problem.strerror}")) from None
    except SmileError as problem:
        raise error_exit(problem) from None
    enter = "" if folder.resolve() == Path.cwd() else f"  cd {folder}\n"
    print(
        f"made {', '.join(names)}\n\n"
        f"Next:\n{enter}"
        "  smile test                              # events, and the rows that are expected\n"
        "  smile serve shop.smile --engine local   # a broker; README.md goes on from here"
    )


def _check_empty(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise error("E170", f"{folder} is a file", hint="Name a new folder.")
    present = sorted(path.name for path in folder.iterdir() if path.name != ".git")
    if present:
        others = f", and {len(present) - 1} more" if len(present) > 1 else ""
        message = f"the folder {folder} is not empty: it has {present[0]}{others}"
        raise error("E170", message, hint="Name a new folder. Nothing was changed.")


def _write_project(folder: Path) -> list[str]:
    """Returns the paths of the files in the folder."""
    names = []
    for path, template in sorted(_templates(resources.files("smile") / "cli" / "project", Path())):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8", newline="\n") as file:
            file.write(template.read_text(encoding="utf-8"))
        names.append(str(target))
    return names


def _templates(folder: Traversable, below: Path) -> Iterator[tuple[Path, Traversable]]:
    for entry in folder.iterdir():
        path = below / DOT_FILES.get(entry.name, entry.name)
        if entry.is_dir():
            yield from _templates(entry, path)
        else:
            yield path, entry


def register(app: typer.Typer) -> None:
    app.command()(init)
