"""Transports errors through Spark: a worker's exception reaches the driver only as text, which is decoded there.

Codes, messages and hints are preserved, and the views that an error concerns.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from smile.engine.view_error import ViewError
from smile.errors import Diagnostic, SmileError

_BEGIN, _END = "⟦smile:", ":smile⟧"


class EncodedError(Exception):
    """A SmileError whose text contains its encoded diagnostics."""


@contextmanager
def encode_errors() -> Iterator[None]:
    """Raises a SmileError of the block as an EncodedError."""
    try:
        yield
    except SmileError as problem:
        fields: dict[str, Any] = {"diagnostics": [[d.code, d.message, d.hint] for d in problem.diagnostics]}
        if isinstance(problem, ViewError):
            fields |= {"views": problem.views, "temporary": problem.is_temporary}
        raise EncodedError(f"{_BEGIN}{json.dumps(fields)}{_END}") from problem


def decode_error(text: str) -> SmileError | None:
    """The SmileError encoded in `text`; None if there is none."""
    match = re.search(f"{_BEGIN}(.*?){_END}", text, re.DOTALL)
    if match is None:
        return None
    fields = json.loads(match[1])
    diagnostics = [Diagnostic(code, message, None, hint) for code, message, hint in fields["diagnostics"]]
    if "views" in fields:
        return ViewError(fields["views"], diagnostics, fields["temporary"])
    return SmileError(diagnostics)
