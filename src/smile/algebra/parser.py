"""Parses MMPL text. Lark builds a parse tree, from which `mmpl_builder` builds the nodes.

Nothing recurses over the text, however long a pipeline or a sum is: Lark's LALR parser has its own stack, and the
builder works from the leaves up. The nesting of brackets is checked first.
"""

import re
from functools import cache
from typing import Any, Final, cast

from lark import Lark, UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.exceptions import VisitError
from lark.lexer import PatternStr

from smile import limits
from smile.algebra import mmpl
from smile.algebra.mmpl_builder import MmplBuilder
from smile.algebra.names import GRAMMAR, KEYWORDS
from smile.errors import SmileError, error
from smile.source import Source, Span


def parse_program(source: Source) -> mmpl.Program:
    return cast(mmpl.Program, _parse(source.text, "program"))


def parse_relation(text: str) -> mmpl.Rel:
    return cast(mmpl.Rel, _parse(text, "relation"))


def parse_expression(text: str) -> mmpl.Expr:
    return cast(mmpl.Expr, _parse(text, "expression"))


def _parse(text: str, start: str) -> object:
    _check_nesting(text)
    try:
        tree = _lark_parser().parse(text, start=start)
    except UnexpectedInput as unexpected:
        raise _syntax_error(unexpected) from None
    try:
        return MmplBuilder().transform(tree)
    except VisitError as wrapped:
        raise wrapped.orig_exc from None


@cache
def _lark_parser() -> Lark:
    # With the basic lexer a word is a keyword everywhere. So which names need quotes does not depend on the context.
    return Lark(
        GRAMMAR,
        parser="lalr",
        lexer="basic",
        propagate_positions=True,
        start=["program", "relation", "expression"],
    )


# ── errors ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_LEXEME: Final = re.compile(
    r"""(?P<closed> '(?:[^']+|'')*+' | "(?:[^"]+|"")*+" | --[^\n]* | /\*(?s:.*?)\*/ )
      | (?P<unclosed> ' | " | /\* )
      | (?P<word> [\w\#$]+ )
      | (?P<bracket> [(){}] )""",
    re.VERBOSE,
)
_UNCLOSED: Final = {"'": ("string", "'"), '"': ("quoted name", '"'), "/*": ("comment", "*/")}
_OPENING: Final = frozenset({"(", "{", "CASE"})
_CLOSING: Final = frozenset({")", "}", "END"})


def _check_nesting(text: str) -> None:
    depth = 0
    for lexeme in _LEXEME.finditer(text):
        word = lexeme[0]
        if lexeme["unclosed"]:
            construct, closing = _UNCLOSED[word]
            raise error(
                "E011",
                f"unterminated {construct}",
                Span(*lexeme.span()),
                f"A {construct} ends at the next {closing}, which may be on a later line.",
            )
        if word in _OPENING:
            depth += 1
        elif word in _CLOSING:
            depth -= 1
        if depth > limits.nesting_max:
            message = f"nested too deeply: more than {limits.nesting_max} levels"
            raise error(
                "E012", message, Span(*lexeme.span()), "Define the inner part as a view, and use its name here."
            )


_TERMINAL_NAMES: Final = {
    "NAME": "a name",
    "QUOTED_NAME": "a name",
    "INT": "a whole number",
    "STRING": "a string in single quotes",
    "$END": "the end of the text",
}


def _syntax_error(unexpected: UnexpectedInput) -> SmileError:
    accepted = frozenset(cast(Any, unexpected).interactive_parser.accepts())
    hint = f"Expected {_describe_expected(accepted)}."
    if isinstance(unexpected, UnexpectedCharacters):
        position = cast(int, unexpected.pos_in_stream)
        return error("E010", f"unexpected character {unexpected.char}", Span(position, position + 1), hint)
    assert isinstance(unexpected, UnexpectedToken)
    token = unexpected.token
    if token.type == "$END":
        end = token.end_pos or 0
        return error("E010", "unexpected end of the text", Span(end, end), hint)
    if token.type == "NAME" and token.upper() in accepted & KEYWORDS:
        hint = f"Write keywords in upper case: {token.upper()}."
    elif token.type in KEYWORDS and "NAME" in accepted:
        hint += f' {token} is a keyword. To use it as a name, write "{token}".'
    start = token.start_pos or 0
    return error("E010", f"unexpected {token}", Span(start, start + len(token)), hint)


def _describe_expected(accepted: frozenset[str]) -> str:
    """Describes what may follow. Where an expression may end, its possible continuations are omitted."""
    descriptions: list[str] = []
    if accepted >= _accepted_after("1 *", "expression"):
        accepted -= _accepted_after("", "expression")
        descriptions.append("an expression")
    if accepted >= _accepted_after("a", "relation"):
        accepted -= _accepted_after("a", "relation")
        descriptions.append("an operator such as WHERE")
    if accepted >= _accepted_after("1", "expression"):
        accepted -= _accepted_after("a", "expression")
    signs = {t.name: f"'{t.pattern.value}'" for t in _lark_parser().terminals if isinstance(t.pattern, PatternStr)}
    descriptions += sorted(
        {_TERMINAL_NAMES.get(name) or (name if name in KEYWORDS else signs[name]) for name in accepted}
    )
    return " or ".join(filter(None, [", ".join(descriptions[:-1]), descriptions[-1]]))


@cache
def _accepted_after(text: str, start: str) -> frozenset[str]:
    parser = cast(Any, _lark_parser().parse_interactive(text, start=start))
    parser.exhaust_lexer()
    return frozenset(parser.accepts()) - {"$END"}
