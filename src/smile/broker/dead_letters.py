"""Events and rows that a connector could not pass on: what the broker's interface shows and changes of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class DeadLetter:
    """`subject` says which event or row it is, and `content` is its text, in JSON or CSV. `at_us` is in microseconds
    since 1970."""

    id: int
    connector: str
    subject: str
    format: str
    content: bytes
    code: str
    message: str
    at_us: int

    @property
    def body(self) -> str:
        """Its text, for people. What is not UTF-8 is replaced."""
        return self.content.decode(errors="replace")


class DeadLetterOffice(Protocol):
    """Thread-safe. The methods wait for a database."""

    def list_letters(self, after: int, letters_max: int) -> Sequence[DeadLetter]:
        """The oldest first, after the one with this id."""

    def retry_letter(self, id_: int) -> None:
        """Publishes the event, or posts what is known of the row now; the letter is gone then."""

    def drop_letter(self, id_: int) -> None:
        """Forgets the event or row."""
