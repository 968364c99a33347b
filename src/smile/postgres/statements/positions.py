"""Text that is assembled from pieces of another text and from new text, and where its positions come from."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from smile.source import Span


@dataclass(frozen=True)
class Piece:
    """`start` is where a copied text begins in the original, or the place in it to which new text belongs."""

    text: str
    start: int
    is_copy: bool = False


@dataclass(frozen=True)
class AssembledText:
    pieces: tuple[Piece, ...]

    @cached_property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @cached_property
    def _starts(self) -> list[int]:
        """Where each piece begins in the assembled text."""
        starts, position = [], 0
        for piece in self.pieces:
            starts.append(position)
            position += len(piece.text)
        return starts

    def original_position(self, position: int) -> int:
        """The position in the original text, both counted from 0."""
        index = max(0, bisect_right(self._starts, position) - 1)
        piece = self.pieces[index]
        return piece.start + (position - self._starts[index] if piece.is_copy else 0)


def copied_piece(text: str, span: Span) -> Piece:
    return Piece(text[span.start : span.end], span.start, is_copy=True)


def assemble(pieces: Iterable[Piece]) -> AssembledText:
    return AssembledText(tuple(piece for piece in pieces if piece.text))
