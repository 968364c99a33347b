"""What cannot be kept: joins some of whose rows would share a key, so that none of them could be told of."""

from smile.algebra import mmpl
from smile.errors import Diagnostic, SmileError

HINT = "Select the keys of both sides under names of their own, or join on columns that are never NULL."


class UnsupportedJoinError(SmileError, NotImplementedError):
    """A join that has a meaning in SQL, where rows have no keys."""

    def __init__(self, rel: mmpl.Join, message: str) -> None:
        super().__init__(Diagnostic("E051", message, rel.span, HINT))
