"""Errors on their way through Spark: what a worker raises reaches the driver as text, from which it is made again."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from smile.errors import Diagnostic, SmileError

_BEGIN, _END = "⟦smile:", ":smile⟧"


class EncodedError(Exception):
    """A SmileError in a form that survives being text."""


@contextmanager
def encode_errors() -> Iterator[None]:
    """What goes wrong within is told to the driver."""
    try:
        yield
    except SmileError as problem:
        diagnostics = [[d.code, d.message, d.hint] for d in problem.diagnostics]
        raise EncodedError(f"{_BEGIN}{json.dumps(diagnostics)}{_END}") from problem


def decode_error(text: str) -> SmileError | None:
    """What went wrong, if it was something that SMILE knows of."""
    match = re.search(f"{_BEGIN}(.*?){_END}", text, re.DOTALL)
    if match is None:
        return None
    return SmileError([Diagnostic(code, message, None, hint) for code, message, hint in json.loads(match[1])])
