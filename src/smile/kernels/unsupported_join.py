"""The error for unsupported joins: joins in which several rows would have the same key."""

from smile.algebra import mmpl
from smile.errors import Diagnostic, SmileError

HINT = "Select the keys of both sides under different names, or join on columns that are never NULL."


class UnsupportedJoinError(SmileError, NotImplementedError):
    """A join that is valid in SQL, where rows need no keys."""

    def __init__(self, rel: mmpl.Join, message: str) -> None:
        super().__init__(Diagnostic("E051", message, rel.span, HINT))
