"""Lays out SmileSQL in one style: `smile fmt`.

The words, names and comments stay, in their order; spaces, line ends and the case of keywords become uniform. So a
program means the same as before, and formatting it again changes nothing. Both are checked before a text is returned.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from smile.errors import SmileError, error
from smile.lang.layout import NEW_LINE, NOTHING, SPACE, Document, group, nest, print_document
from smile.lang.lexer import read_lexemes
from smile.lang.parser import parse
from smile.lang.printer import print_statements
from smile.recursion import continue_in_threads
from smile.source import Source

LINE_CHARS: Final = 100

UPPER_CASE_WORDS: Final = frozenset(
    """
    ADVERTISE ALL AND AS ASC ASOF BEST BETWEEN BY CASE CAST CREATE CROSS DESC DISTINCT DOMAIN ELSE END EXCEPT EXISTS
    FALSE FROM FULL GLOBAL GROUP HAVING ILIKE IMPORT IN INNER INTERSECT INTERVAL IS JOIN LEFT LIKE LIMIT NATURAL NOT
    NULL NULLS ON OR ORDER OUTER OVER PARTITION PER QUALIFY REPUBLISHER RIGHT SELECT STREAM SUBSCRIBE THEN TRUE UNION
    UNIQUE USING VIEW WHEN WHERE WITH
    """.split()
)
"""Printed in upper case, unless that changed the meaning of their statement: some may be names too."""

_CLAUSES: Final = frozenset("SELECT FROM WHERE HAVING QUALIFY LIMIT UNION EXCEPT INTERSECT BEST".split())
_CLAUSES_WITH_BY: Final = frozenset(("GROUP", "ORDER"))
_JOIN_WORDS: Final = frozenset("NATURAL LEFT RIGHT FULL INNER OUTER CROSS ASOF SEMI ANTI JOIN".split())
_LIST_CLAUSES: Final = frozenset("SELECT GROUP ORDER WITH SUBSCRIBE SUBSCRIPTIONS".split())
_SPACE_BEFORE_PAREN: Final = UPPER_CASE_WORDS - {"LEFT", "RIGHT", "CAST", "GROUP"} | {
    "CHECK",
    "FILTER",
    "SETS",
    "VALUES",
}
"""Words that are no functions: a space follows them also before a parenthesis."""
_OPENING, _CLOSING = frozenset("(["), frozenset(")]")


@dataclass(frozen=True)
class _Comment:
    """`begins_line` and `ends_line` say whether it has no code before it, or after it, in its line."""

    text: str
    begins_line: bool
    ends_line: bool
    after_blank_line: bool


@dataclass(frozen=True)
class _Token:
    """`comments` are those before it. `after_blank_line`: a blank line is above it, or above the last comment."""

    text: str
    word: str
    """The text of a word in upper case; empty for anything else."""
    comments: tuple[_Comment, ...] = ()
    after_blank_line: bool = False


@dataclass(frozen=True)
class _Parens:
    open: _Token
    nodes: "tuple[_Node, ...]"
    close: _Token


_Node = _Token | _Parens


def format_program(source: Source) -> str:
    """The text in the uniform style. Raises SmileError if a statement cannot be parsed."""
    statements, problems = parse(source)
    if problems:
        raise SmileError(problems)
    meaning = print_statements(statements)
    for keep_case in (False, True):
        text = _format_text(source.text, keep_case)
        parsed, problems = parse(Source(source.name, text))
        if not problems and print_statements(parsed) == meaning:
            return text
    raise error("E168", f"{source.name} cannot be laid out without changing its meaning")


def _format_text(text: str, keep_case: bool) -> str:
    formatted = ""
    statement: list[_Token] = []
    comments: tuple[_Comment, ...] = ()  # those before an empty statement belong to the next one
    for token in _read_tokens(text):
        if token.text not in ("", ";"):
            statement.append(replace(token, comments=comments + token.comments))
            comments = ()
        elif statement and token.text:
            formatted += _format_statement(statement, token.comments, is_first=not formatted, keep_case=keep_case)
            statement = []
        else:
            if statement:  # the last one, without a semicolon
                formatted += _format_statement(statement, (), is_first=not formatted, keep_case=keep_case)
            comments += token.comments
    return f"{formatted}{_print_comments(comments, is_first=not formatted)}\n"


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_tokens(text: str) -> Iterator[_Token]:
    """All tokens, each with the comments before it; an empty one at the end."""
    comments: list[_Comment] = []
    line_breaks = 2  # nothing is before the first token
    for lexeme in read_lexemes(text):
        written = text[lexeme.start : lexeme.end]
        if lexeme.kind == "space":
            line_breaks += written.count("\n")
            if comments and line_breaks:
                comments[-1] = replace(comments[-1], ends_line=True)
        elif lexeme.kind in ("remark", "comment"):
            is_remark = lexeme.kind == "remark"
            comments.append(_Comment(written.rstrip(), line_breaks > 0, is_remark, line_breaks > 1))
            line_breaks = 0
        else:
            word = written.upper() if lexeme.kind == "word" else ""
            yield _Token(written, word, tuple(comments), line_breaks > 1)
            comments, line_breaks = [], 0
    yield _Token("", "", tuple(comments), line_breaks > 1)


def _nest_parentheses(tokens: Sequence[_Token]) -> tuple[_Node, ...]:
    """The parser has checked that they are balanced."""
    open_parens: list[_Token] = []
    levels: list[list[_Node]] = [[]]
    for token in tokens:
        if token.text in _OPENING:
            open_parens.append(token)
            levels.append([])
        elif token.text in _CLOSING:
            inner = tuple(levels.pop())
            levels[-1].append(_Parens(open_parens.pop(), inner, token))
        else:
            levels[-1].append(token)
    return tuple(levels[0])


def _first(node: _Node) -> _Token:
    return node.open if isinstance(node, _Parens) else node


def _word(nodes: Sequence[_Node], index: int) -> str:
    """The word at this place in upper case; empty if there is none."""
    if not 0 <= index < len(nodes):
        return ""
    node = nodes[index]
    return node.word if isinstance(node, _Token) else ""


# ── layout ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _format_statement(
    tokens: Sequence[_Token], end_comments: tuple[_Comment, ...], is_first: bool, keep_case: bool
) -> str:
    """`end_comments` are those before the semicolon."""
    first = tokens[0]
    before = _print_comments(first.comments, is_first)
    before += _line_end(first.after_blank_line, is_first and not before)
    bare = [replace(first, comments=()), *tokens[1:]]
    nodes = _nest_parentheses(bare if keep_case else [_in_upper_case(token) for token in bare])
    end = _Token(";", "", end_comments)
    return before + print_document(group(_statement(nodes), _gap(end, ""), end.text), LINE_CHARS)


def _in_upper_case(token: _Token) -> _Token:
    return replace(token, text=token.word) if token.word in UPPER_CASE_WORDS else token


def _print_comments(comments: Sequence[_Comment], is_first: bool) -> str:
    """The comments between two statements. One blank line between them stays one."""
    text = ""
    for comment in comments:
        is_beside = not comment.begins_line and not is_first
        text += (" " if is_beside else _line_end(comment.after_blank_line, is_first)) + comment.text
        is_first = False
    return text


def _line_end(is_blank: bool, is_first: bool) -> str:
    return "" if is_first else "\n\n" if is_blank else "\n"


def _statement(nodes: tuple[_Node, ...]) -> Document:
    names_view = (_word(nodes, 0), _word(nodes, 1)) in (("CREATE", "VIEW"), ("CREATE", "REPUBLISHER"))
    query_at = next((i + 1 for i in range(len(nodes)) if _word(nodes, i) == "AS"), 0) if names_view else 0
    if 0 < query_at < len(nodes):
        query = nodes[query_at:]
        return group(_sequence(nodes[:query_at]), nest(_gap(_first(query[0]), NEW_LINE), _content(query)))
    if _word(nodes, 0) in _LIST_CLAUSES:
        return _clause(nodes)
    return _sequence(nodes)


@continue_in_threads
def _content(nodes: tuple[_Node, ...]) -> Document:
    """What stands in parentheses, or defines a view: a query, or expressions between commas."""
    if _is_query(nodes):
        clauses = _split_clauses(nodes)
        return group(_clause(clauses[0]), *((_gap(_first(c[0]), SPACE), _clause(c)) for c in clauses[1:]))
    parts = _split_commas(nodes)
    return (_sequence(parts[0]), *((_gap(_first(p[0]), SPACE), _sequence(p)) for p in parts[1:]))


def _is_query(nodes: Sequence[_Node]) -> bool:
    begins = _word(nodes, 0) in ("SELECT", "WITH")
    return begins or any(_word(nodes, i) in ("UNION", "EXCEPT", "INTERSECT") for i in range(1, len(nodes)))


def _split_clauses(nodes: tuple[_Node, ...]) -> list[tuple[_Node, ...]]:
    starts = [0, *(i for i in range(1, len(nodes)) if _begins_clause(nodes, i))]
    return [nodes[start:end] for start, end in zip(starts, [*starts[1:], len(nodes)], strict=True)]


def _begins_clause(nodes: Sequence[_Node], i: int) -> bool:
    word, before = _word(nodes, i), _word(nodes, i - 1)
    if word in _JOIN_WORDS:
        end = next((j for j in range(i, len(nodes)) if _word(nodes, j) not in _JOIN_WORDS), len(nodes))
        return before not in _JOIN_WORDS and "JOIN" in {_word(nodes, j) for j in range(i, end)}
    if word in _CLAUSES_WITH_BY:
        return _word(nodes, i + 1) == "BY"
    if word == "FROM":
        return before != "DISTINCT"  # IS DISTINCT FROM
    if word == "EXCEPT":
        return not (isinstance(nodes[i - 1], _Token) and _first(nodes[i - 1]).text == "*")  # SELECT * EXCEPT (a)
    if word == "BEST":
        return i + 1 < len(nodes) and _first(nodes[i + 1]).text.isdigit()
    return word in _CLAUSES


def _clause(nodes: tuple[_Node, ...]) -> Document:
    """A clause with its keywords. Where it does not fit, it has a column or condition a line."""
    head = _head_length(nodes)
    if head == 0 or head == len(nodes):
        return _sequence(nodes)
    body, is_list = nodes[head:], _word(nodes, 0) in _LIST_CLAUSES
    parts = _split_commas(body)
    listed = (_sequence(parts[0]), *((_gap(_first(p[0]), SPACE), _sequence(p)) for p in parts[1:]))
    first_gap = _gap(_first(body[0]), SPACE if is_list else " ")
    content = nest(first_gap, *listed) if is_list or len(parts) > 1 else (first_gap, *listed)
    return group(_sequence(nodes[:head]), content)


def _head_length(nodes: Sequence[_Node]) -> int:
    word = _word(nodes, 0)
    if word in _JOIN_WORDS:
        return next((i for i in range(len(nodes)) if _word(nodes, i) not in _JOIN_WORDS), len(nodes))
    if word in _CLAUSES_WITH_BY:
        return 2
    if word == "SELECT":
        return 2 if _word(nodes, 1) in ("ALL", "DISTINCT") and _word(nodes, 2) != "ON" else 1
    if word in ("UNION", "EXCEPT", "INTERSECT"):
        return len(nodes)
    return 1 if word in _CLAUSES or word in _LIST_CLAUSES else 0


def _split_commas(nodes: tuple[_Node, ...]) -> list[tuple[_Node, ...]]:
    """The parts between commas; each ends with its comma."""
    parts: list[list[_Node]] = [[]]
    for i, node in enumerate(nodes):
        parts[-1].append(node)
        if isinstance(node, _Token) and node.text == "," and i + 1 < len(nodes):
            parts.append([])
    return [tuple(part) for part in parts]


def _sequence(nodes: tuple[_Node, ...]) -> Document:
    """Tokens and parentheses beside each other. Lines may break before AND, OR, ON, and the parts of a CASE."""
    documents: list[Document] = []
    is_between = has_break = False
    for i, node in enumerate(nodes):
        word = _word(nodes, i)
        if i:
            may_break = word in ("OR", "ON", "WHEN", "ELSE", "END") or (word == "AND" and not is_between)
            has_break |= may_break
            documents.append(_gap(_first(node), SPACE if may_break else _space(nodes, i)))
        is_between = word == "BETWEEN" or (is_between and word != "AND")
        documents.append(_parentheses(node) if isinstance(node, _Parens) else node.text)
    return group(documents[0], nest(*documents[1:]) if has_break else tuple(documents[1:])) if documents else ""


def _parentheses(node: _Parens) -> Document:
    if not node.nodes:
        return (node.open.text, _gap(node.close, ""), node.close.text)
    inner = nest(_gap(_first(node.nodes[0]), NOTHING), _content(node.nodes), _comments_inside(node.close))
    end = NEW_LINE if node.close.comments else NOTHING
    return group(node.open.text, inner, end, node.close.text)


def _comments_inside(close: _Token) -> Document:
    """Comments before a closing parenthesis belong to what is inside."""
    return _gap_comments(close.comments)[0]


def _gap(token: _Token, default: Document) -> Document:
    """What stands between a token and the one before it: the default, or the comments before it."""
    if not token.comments:
        return default
    comments, ends_line = _gap_comments(token.comments)
    return (comments, NEW_LINE if ends_line else " ")


def _gap_comments(comments: Sequence[_Comment]) -> tuple[Document, bool]:
    """The comments, and whether a new line has to follow."""
    documents: list[Document] = []
    ends_line = False
    for comment in comments:
        own_line = ends_line or (comment.begins_line and comment.ends_line)
        documents += [NEW_LINE if own_line else " ", comment.text]
        ends_line = own_line or comment.text.startswith("--")
    return tuple(documents), ends_line


def _space(nodes: Sequence[_Node], i: int) -> str:
    """The space between two neighbours in a line."""
    before, after = nodes[i - 1], nodes[i]
    left = before.close.text if isinstance(before, _Parens) else before.text
    right = _first(after).text
    if left[-1] + right[0] in ("--", "/*"):
        return " "  # without it, a comment would begin
    if right in (",", ".", "::", ":", "[", "]") or left in (".", "::", "["):
        return ""
    if left in ("-", "+") and not _is_operand(nodes, i - 2):
        return ""  # a sign
    return "" if right == "(" and _is_called(nodes, i - 1) else " "


def _is_called(nodes: Sequence[_Node], i: int) -> bool:
    """Whether this is the name of a function, or of a type with arguments."""
    node = nodes[i]
    if isinstance(node, _Parens) or not (node.word or node.text[0] == '"') or node.word in _SPACE_BEFORE_PAREN:
        return False
    is_defined = _word(nodes, 0) == "CREATE" and i == (3 if _word(nodes, 1) == "GLOBAL" else 2)
    is_advertised = _word(nodes, 0) == "ADVERTISE" and i == 1
    return not is_defined and not is_advertised


def _is_operand(nodes: Sequence[_Node], i: int) -> bool:
    """Whether a value ends here, so that a following minus subtracts."""
    if i < 0:
        return False
    node = nodes[i]
    return isinstance(node, _Parens) or (node.word not in UPPER_CASE_WORDS and bool(re.match(r"[\w'\"#.]", node.text)))
