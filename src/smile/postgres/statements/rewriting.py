"""Rewrites a query text: its publish/subscribe statements become calls of functions, in place.

Everything else of the text stays as it is, in its order. So the text is still one implicit transaction, and PostgreSQL
itself finds all other errors in it.
"""

from dataclasses import dataclass

from smile.errors import Diagnostic, SmileError
from smile.postgres.statements.parser import parse_statement
from smile.postgres.statements.positions import AssembledText, Piece, assemble, copied_piece
from smile.postgres.statements.splitter import split_statements
from smile.postgres.statements.translation import Translation, quote_identifier, translate_statement
from smile.source import Span

_WORDS = (
    "advertise", "publish", "event", "queue", "rule", "subscription", "link", "stream", "view",
)  # fmt: skip
"""Every statement of this grammar contains one of these words."""


@dataclass(frozen=True)
class WrongStatement:
    """A statement that can only be a publish/subscribe statement, and is not a complete one."""

    span: Span
    diagnostic: Diagnostic


@dataclass(frozen=True)
class RewrittenQuery:
    query: AssembledText
    translations: tuple[Translation, ...]
    wrong: tuple[WrongStatement, ...]

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(translation.tag for translation in self.translations)


def rewrite_query(text: str, result_name: str, standard_conforming_strings: bool = True) -> RewrittenQuery | None:
    """The text with translated statements, or None if it has no publish/subscribe statement, not even a wrong one.

    The results of the translated statements have one column with the name `result_name`.
    """
    folded = text.lower()
    if not any(word in folded for word in _WORDS):
        return None
    statements = split_statements(text, standard_conforming_strings)
    translations: list[Translation] = []
    wrong: list[WrongStatement] = []
    pieces: list[Piece] = []
    position = 0
    for statement in statements or ():
        try:
            node = parse_statement(statement)
        except SmileError as problem:
            wrong.append(WrongStatement(Span(statement.start, statement.end), problem.diagnostics[0]))
            continue
        if node is None:
            continue
        translation = translate_statement(node, statement)
        pieces += [copied_piece(text, Span(position, statement.start)), *translation.call.pieces]
        pieces.append(Piece(f" AS {quote_identifier(result_name)}", statement.start))
        translations.append(translation)
        position = statement.end
    if not translations and not wrong:
        return None
    pieces.append(copied_piece(text, Span(position, len(text))))
    return RewrittenQuery(assemble(pieces), tuple(translations), tuple(wrong))
