"""Printed MMPL parses to an equal tree and has no needless parentheses. Errors have the right position and hint."""

import re
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from lark.lexer import PatternStr

from smile import limits
from smile.algebra import mmpl, trees, types
from smile.algebra.functions.catalogue import SCALAR_FUNCTIONS
from smile.algebra.mmpl import Call, ColumnRef, Constant, Expr
from smile.algebra.names import GRAMMAR, KEYWORDS
from smile.algebra.parser import _lark_parser, parse_expression, parse_program, parse_relation
from smile.algebra.printer import print_expression, print_program, print_relation
from smile.errors import SmileError
from smile.source import Source, Span
from tests.algebra.strategies import BINARY, UNARY, expressions, programs, relations
from tests.repeatable import scaled

DOCUMENT = (Path(__file__).parents[2] / "docs" / "mmpl.md").read_text("utf-8")
BLOCKS = re.findall(r"^```mmpl\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)


def repeatable(cases: int) -> settings:
    return settings(max_examples=scaled(cases))


A, B, C = ColumnRef("a"), ColumnRef("b"), ColumnRef("c")
ONE = Constant(1, types.INT)


def call(function: str, *args: Expr) -> Call:
    return Call(function, args)


# ── printing and parsing ────────────────────────────────────────────────────────────────────────────────────────────


@repeatable(500)
@given(expressions())
def test_an_expression_survives(expr: Expr) -> None:
    assert parse_expression(print_expression(expr)) == expr


@repeatable(300)
@given(relations())
def test_a_relation_survives(rel: mmpl.Rel) -> None:
    assert parse_relation(print_relation(rel)) == rel


@repeatable(150)
@given(programs())
@example(mmpl.Program((), (), ()))
def test_a_program_survives(program: mmpl.Program) -> None:
    text = print_program(program)
    reparsed = parse_program(Source("program", text))
    assert reparsed == program
    assert print_program(reparsed) == text


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (call("-", call("-", A, B), C), "a - b - c"),
        (call("-", A, call("-", B, C)), "a - (b - c)"),
        (call("*", call("+", A, B), C), "(a + b) * c"),
        (call("+", A, call("*", B, C)), "a + b * c"),
        (call("or", A, call("and", B, C)), "a OR b AND c"),
        (call("and", A, call("or", B, C)), "a AND (b OR c)"),
        (call("not", call("=", A, B)), "NOT a = b"),
        (call("=", call("not", A), B), "(NOT a) = b"),
        (call("is null", call("=", A, B)), "a = b IS NULL"),
        (call("=", A, call("is null", B)), "a = (b IS NULL)"),
        (call("=", call("=", A, B), C), "(a = b) = c"),
        (call("is not distinct from", A, call("||", B, C)), "a IS NOT DISTINCT FROM b || c"),
        (call("not", call("ilike", A, call("||", B, C))), "NOT a ILIKE b || c"),
        (call("neg", ONE), "-(1)"),
        (Constant(-1, types.INT), "-1"),
        (call("-", A, Constant(-1, types.INT)), "a - -1"),
        (call("neg", call("*", A, B)), "-(a * b)"),
        (call("*", call("neg", A), B), "-a * b"),
        (call("+", A, B, C), '"+"(a, b, c)'),
        (call("abs", call("+", A, B)), "abs(a + b)"),
        (Constant(None, types.INT), "NULL int"),
        (Constant(None, types.NULL), "NULL"),
        (
            Constant(None, types.relation_type((("SUM", types.decimal_type(3, 1)),))),
            'NULL relation{"SUM": decimal(3, 1)}',
        ),
        (Constant(Decimal("1.50"), types.decimal_type(10, 2)), "DECIMAL(10, 2) '1.50'"),
        (Constant(0.1, types.FLOAT), "FLOAT '0.1'"),
        (Constant(True, types.BOOL), "TRUE"),
        (Constant("it's", types.STRING), "'it''s'"),
        (Constant(17, types.TIME), "TIME '17'"),
        (Constant(b"\x00\xff", types.BYTES), r"BYTES '\x00ff'"),
        (Constant(19_000, types.DATE), "DATE '2022-01-08'"),
        (Constant(1_500_000, types.TIMESTAMP), "TIMESTAMP '1970-01-01 00:00:01.5'"),
        (Constant(184_320_000_000, types.INTERVAL), "INTERVAL '3' MINUTE"),
        (ColumnRef("b.t"), '"b.t"'),
        (ColumnRef("where"), "where"),
        (ColumnRef("WHERE"), '"WHERE"'),
        (mmpl.Case(((A, B),), mmpl.Cast(C, types.STRING)), "CASE WHEN a THEN b ELSE CAST(c AS string) END"),
    ],
)
def test_expressions_look_like_sql(expr: Expr, text: str) -> None:
    assert print_expression(expr) == text
    assert parse_expression(text) == expr


@pytest.mark.parametrize("outer", [*BINARY, *UNARY])
def test_an_operator_within_an_operator_survives_without_a_needless_parenthesis(outer: str) -> None:
    leaves = (A, ONE, Constant(-1, types.INT), Constant(None, types.INT))
    inner = [call(f, a, B) for f in BINARY for a in leaves[:2]] + [call(f, a) for f in UNARY for a in leaves]
    for expr in (*inner, *leaves):
        for whole in [call(outer, expr)] if outer in UNARY else [call(outer, expr, C), call(outer, C, expr)]:
            text = print_expression(whole)
            assert parse_expression(text) == whole
            for start, end in _parentheses(text):
                bare = f"{text[:start]} {text[start + 1 : end]} {text[end + 1 :]}"
                needless = False
                with suppress(SmileError):
                    needless = parse_expression(bare) == whole
                # Those of -(-a) are needed: without them the minus signs would start a comment.
                assert not needless or "-(-" in text


def _parentheses(text: str) -> list[tuple[int, int]]:
    opened, pairs = [], []
    for lexeme in re.finditer(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[()]", text):
        if lexeme[0] == "(":
            opened.append(lexeme.start())
        elif lexeme[0] == ")":
            pairs.append((opened.pop(), lexeme.start()))
    return pairs


def test_the_short_decimal_has_the_digits_and_scale_of_its_text() -> None:
    assert parse_expression("DECIMAL '1.50'") == Constant(Decimal("1.50"), types.decimal_type(3, 2))
    assert parse_expression("DECIMAL '-0.001'") == Constant(Decimal("-0.001"), types.decimal_type(3, 3))
    assert parse_expression("DECIMAL '1e3'") == Constant(Decimal(1000), types.decimal_type(4, 0))


def test_comments_and_blanks_are_ignored() -> None:
    text = "A -- a WHERE ' \n /* PROJECT { * / ** */WHERE\tx--\n=1"
    assert parse_relation(text) == mmpl.Restrict(mmpl.RelationRef("A"), call("=", ColumnRef("x"), ONE))


def test_statements_stand_in_any_order() -> None:
    program = parse_program(Source("p", "SUBSCRIBE v; VIEW v := s; SUBSCRIBE w; STREAM s (t: time); LET w := s;"))
    assert program.subscriptions == ("v", "w")
    assert [v.shared for v in program.views] == [False, True]
    assert program.streams == (mmpl.StreamDef("s", "t", ()),)


def test_the_catalogue_has_the_operators_and_its_functions_are_words() -> None:
    assert set(SCALAR_FUNCTIONS) >= {*BINARY, *UNARY}
    assert [name for name in SCALAR_FUNCTIONS if not name.isidentifier() and name not in (*BINARY, *UNARY)] == []


# ── spans ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _slice(text: str, span: Span | None) -> str:
    assert span is not None
    return text[span.start : span.end]


@repeatable(100)
@given(expressions())
def test_the_span_of_an_expression_is_its_text(expr: Expr) -> None:
    text = print_expression(expr)
    stack = [parse_expression(text)]
    while stack:
        node = stack.pop()
        assert parse_expression(_slice(text, node.span)) == node
        stack.extend(trees.operands_of(node))


@repeatable(100)
@given(relations())
def test_the_span_of_an_operator_is_its_own_line(rel: mmpl.Rel) -> None:
    text = print_relation(rel)
    for node in trees.walk(parse_relation(text)):
        line = _slice(text, node.span)
        if isinstance(node, mmpl.RelationRef | mmpl.Merge | mmpl.Union):
            assert parse_relation(line) == node
        else:
            side = "left" if isinstance(node, mmpl.Join | mmpl.Asof) else "input"
            changes: dict[str, Any] = {side: mmpl.RelationRef("a")}
            assert parse_relation(f"a {line}") == replace(node, **changes)


def test_the_span_of_a_statement_is_its_text() -> None:
    text = "  STREAM s (t: time); VIEW v := s SUMMARIZE PER {} ADD {n := COUNT()};"
    program = parse_program(Source("p", text))
    assert _slice(text, program.streams[0].span) == "STREAM s (t: time)"
    assert _slice(text, program.views[0].span).startswith("VIEW v")
    body = program.views[0].body
    assert isinstance(body, mmpl.Summarize)
    assert _slice(text, body.aggregates[0][1].span) == "COUNT()"


# ── errors ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "code", "position", "hint"),
    [
        ("VIEW A := B where x;", "E010", "where", "Write keywords in upper case: WHERE."),
        ("VIEW SUM := B;", "E010", "SUM", 'Expected a name. SUM is a keyword. To use it as a name, write "SUM".'),
        ("VIEW A := B WHERE a + ;", "E010", ";", "Expected an expression."),
        ("VIEW A := B WHERE a b;", "E010", "b;", "Expected an operator such as WHERE or ';'."),
        ("VIEW A := B", "E010", "", "Expected an operator such as WHERE or ';'."),
        ("VIEW A := B WHERE x < y < z;", "E010", "< z", "Expected an operator such as WHERE, ';', AND, IS or OR."),
        ("VIEW A := B BEST 3 BY x;", "E010", ";", "Expected ',', DESC or PER."),
        ("VIEW A := B SUMMARIZE PER {x} ADD {};", "E010", "};", "Expected a name."),
        (
            "SELECT 1;",
            "E010",
            "SELECT",
            "Expected ADVERTISE, HISTORY, IMPORT, LET, STREAM, SUBSCRIBE, VIEW or the end of the text.",
        ),
        ("VIEW A := B WHERE 5x > 3;", "E010", "5x", "Expected an expression."),
        ("VIEW A := B WHERE x = 'it''s;", "E011", "'it", "A string ends at the next ', which may be on a later line."),
        ('VIEW "A := B;', "E011", '"A', 'A quoted name ends at the next ", which may be on a later line.'),
        ("VIEW A := B /* WHERE 'x'", "E011", "/*", "A comment ends at the next */, which may be on a later line."),
        ("STREAM s (t: tim);", "E025", "tim", "Did you mean time?"),
        ("STREAM s (t: time -> x: decimal(39, 0));", "E025", "decimal", "A decimal has from 1 to 38 digits"),
        ("STREAM s (t: time -> x: int(3, 0));", "E025", "int", "Only decimal(digits, scale) has."),
        ("STREAM s (t: int);", "E031", "STREAM", "Write t: time."),
        ("VIEW A := B WHERE x > 9223372036854775808;", "E033", "9", None),
        ("VIEW A := B WHERE x > DATE '2020-13-01';", "E033", "DATE", None),
        ("VIEW A := B WHERE x > DECIMAL 'abc';", "E033", "DECIMAL", None),
        ("VIEW A := B WHERE x > DECIMAL(2, 1) '10';", "E033", "DECIMAL", None),
        ("VIEW A := B TUMBLE t SIZE INTERVAL 'x' DAY;", "E033", "INTERVAL", None),
    ],
)
def test_errors_have_a_position_and_a_hint(text: str, code: str, position: str, hint: str | None) -> None:
    with pytest.raises(SmileError) as raised:
        parse_program(Source("p", text))
    [diagnostic] = raised.value.diagnostics
    assert diagnostic.code == code
    assert diagnostic.span is not None
    assert diagnostic.span.start == (text.index(position) if position else len(text))
    assert (diagnostic.hint or "").startswith(hint or "")
    assert (diagnostic.hint is None) == (hint is None)


@pytest.mark.parametrize(("opening", "closing"), [("(", ")"), ("CASE WHEN ", " THEN 1 ELSE 1 END"), ("f(", ")")])
def test_nesting_has_a_limit(opening: str, closing: str) -> None:
    def nested(depth: int) -> str:
        return opening * depth + "x" + closing * depth

    parse_expression(nested(limits.nesting_max))
    with pytest.raises(SmileError) as raised:
        parse_expression(nested(limits.nesting_max + 1))
    assert raised.value.diagnostics[0].code == "E012"
    span = raised.value.diagnostics[0].span
    assert span is not None
    assert span.start >= len(opening) * limits.nesting_max


@pytest.mark.parametrize("text", [" + ".join("x" * 3000), "NOT " * 3000 + "x", "x" + " IS NULL" * 3000])
def test_long_expressions_need_no_deep_stack(text: str) -> None:
    assert print_expression(parse_expression(text)) == text


def test_long_pipelines_need_no_deep_stack() -> None:
    text = "A" + "\nDISTINCT" * 3000
    assert print_relation(parse_relation(text)) == text


# ── the document ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("block", BLOCKS)
def test_examples_are_as_they_would_be_printed(block: str) -> None:
    program = parse_program(Source("docs/mmpl.md", block))
    assert print_program(program) == block
    assert parse_program(Source("printed", print_program(program))) == program


def test_the_document_has_the_grammar_and_every_keyword() -> None:
    before, grammar, after = re.split(r"^```lark\n(.*?)^```$", DOCUMENT, flags=re.MULTILINE | re.DOTALL)
    assert grammar == GRAMMAR, "copy algebra/mmpl.lark into docs/mmpl.md"
    assert KEYWORDS - set(re.findall("[A-Z_]+", before + after)) == set()


def test_every_operator_has_an_example() -> None:
    shown = {type(rel) for block in BLOCKS for view in _views(block) for rel in trees.walk(view.body)}
    assert shown == set(mmpl.Rel.__subclasses__()) - {mmpl.Imported}  # it stands for a statement


def _views(block: str) -> tuple[mmpl.ViewDef, ...]:
    return parse_program(Source("docs/mmpl.md", block)).views


def test_the_printer_quotes_what_the_parser_reserves() -> None:
    fixed = {t.pattern.value for t in _lark_parser().terminals if isinstance(t.pattern, PatternStr)}
    assert {word for word in fixed if word.replace("_", "").isalpha()} == KEYWORDS
