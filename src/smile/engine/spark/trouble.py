"""Errors on their way through Spark: what a worker raises reaches the driver as text, from which it is made again."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from smile.errors import Diagnostic, SmileError

_BEGIN, _END = "⟦smile:", ":smile⟧"


class Told(Exception):
    """A SmileError in a form that survives being text."""


@contextmanager
def told() -> Iterator[None]:
    """What goes wrong within is told to the driver."""
    try:
        yield
    except SmileError as problem:
        found = [[d.code, d.message, d.hint] for d in problem.diagnostics]
        raise Told(f"{_BEGIN}{json.dumps(found)}{_END}") from problem


def heard(text: str) -> SmileError | None:
    """What went wrong, if it was something that SMILE knows of."""
    found = re.search(f"{_BEGIN}(.*?){_END}", text, re.DOTALL)
    if found is None:
        return None
    return SmileError([Diagnostic(code, message, None, hint) for code, message, hint in json.loads(found[1])])
