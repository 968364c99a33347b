"""Prints MMPL as text with the fewest parentheses. Parsing the text gives an equal tree.

Nothing recurses over the tree, however deep it is: a node is split into pieces, which are text and smaller nodes, and a
stack turns these into text.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from smile.algebra import mmpl, trees
from smile.algebra.coercions import interval_text, literal_text
from smile.algebra.names import name_text, names_text
from smile.algebra.types import BOOL, INT, INTERVAL, NULL, STRING, DataType


class _ExpressionPiece(NamedTuple):
    """An expression where the grammar requires one that binds at least as tightly as `level`."""

    expr: mmpl.Expr
    level: int = 0


class _RelationPiece(NamedTuple):
    """A relation whose lines after the first start at `indent`."""

    rel: mmpl.Rel
    indent: int


_Piece = str | _ExpressionPiece | _RelationPiece


class _Infix(NamedTuple):
    """The precedence level of an operator, and the levels that it requires of its operands, as in PostgreSQL."""

    symbol: str
    level: int
    left: int
    right: int


_NOT, _IS, _COMPARISON, _NEG, _PRIMARY = 3, 4, 5, 10, 11
_INFIX: Final[dict[str, _Infix]] = {
    "or": _Infix("OR", 1, 2, 2),
    "and": _Infix("AND", 2, 3, 3),
    "is distinct from": _Infix("IS DISTINCT FROM", _IS, _IS, _COMPARISON),
    "is not distinct from": _Infix("IS NOT DISTINCT FROM", _IS, _IS, _COMPARISON),
    **{op: _Infix(op, _COMPARISON, 6, 6) for op in ("=", "<>", "<", "<=", ">", ">=")},
    "like": _Infix("LIKE", 6, 7, 7),
    "ilike": _Infix("ILIKE", 6, 7, 7),
    "||": _Infix("||", 7, 7, 8),
    **{op: _Infix(op, 8, 8, 9) for op in ("+", "-")},
    **{op: _Infix(op, 9, 9, _NEG) for op in ("*", "/", "%")},
}
_POSTFIX: Final = {"is null": "IS NULL", "is not null": "IS NOT NULL"}


def print_program(program: mmpl.Program) -> str:
    statements = [_import(i) for i in program.imports]
    statements += [_stream(s) for s in program.streams] + [_view(v) for v in program.views]
    statements += [_advertisement(a) for a in program.advertisements]
    statements += [[f"HISTORY {name_text(h.relation)} {interval_text(h.ticks)}"] for h in program.histories]
    if program.subscriptions:
        statements.append(["SUBSCRIBE ", ", ".join(map(name_text, program.subscriptions))])
    return "\n".join(_render([*statement, ";\n"]) for statement in statements)


def print_relation(rel: mmpl.Rel) -> str:
    return _render([_RelationPiece(rel, 0)])


def print_expression(expr: mmpl.Expr) -> str:
    return _render([_ExpressionPiece(expr)])


def type_text(data_type: DataType) -> str:
    if data_type.name == "array":
        return f"{type_text(data_type.element)}[]"
    if data_type.name != "relation":
        return str(data_type)
    return "relation{" + _fields(data_type.columns) + "}"


def _render(pieces: list[_Piece]) -> str:
    out: list[str] = []
    stack = pieces[::-1]
    while stack:
        match stack.pop():
            case str(text):
                out.append(text)
            case _ExpressionPiece(expr, level):
                stack.extend(reversed(_expression(expr, level)))
            case _RelationPiece(rel, indent):
                stack.extend(reversed(_pipeline(rel, indent)))
    return "".join(out)


def _separate(items: Iterable[list[_Piece]], separator: str = ", ") -> list[_Piece]:
    pieces: list[_Piece] = []
    for item in items:
        if pieces:
            pieces.append(separator)
        pieces += item
    return pieces


def _fields(fields: Iterable[tuple[str, DataType]]) -> str:
    return ", ".join(f"{name_text(name)}: {type_text(data_type)}" for name, data_type in fields)


# ── statements ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _import(import_: mmpl.ImportDef) -> list[_Piece]:
    """Its definition follows in braces. So the text is complete without recorded types."""
    pieces = _import_source(import_)
    if import_.name != import_.relation:
        pieces.append(f" AS {name_text(import_.name)}")
    if import_.edition != 1:
        pieces.append(f" EDITION {import_.edition}")
    if import_.definition is not None:
        pieces += [" {\n", print_program(import_.definition), "}"]
    return pieces


def _import_source(import_: mmpl.ImportDef) -> list[_Piece]:
    brokers = ", ".join(map(name_text, import_.brokers))
    pieces: list[_Piece] = [f"IMPORT {name_text(import_.relation)} FROM {brokers}"]
    return pieces if import_.condition is None else [*pieces, " WHERE ", _ExpressionPiece(import_.condition)]


def _stream(stream: mmpl.StreamDef) -> list[_Piece]:
    columns = f" -> {_fields(stream.columns)}" if stream.columns else ""
    pieces: list[_Piece] = [f"STREAM {name_text(stream.name)} ({name_text(stream.tick)}: time{columns})"]
    if stream.publisher_timed:
        pieces.append(" TICKS PUBLISHER")
    if stream.many_origins:
        pieces.append(" ORIGINS MANY")
    if stream.home is not None:
        pieces.append(f" HOME {name_text(stream.home)}")
    if stream.whole_commits:
        pieces.append(" COMMITS WHOLE")
    if stream.is_table:
        pieces.append(" CHANGES TABLE")
    if stream.channel is not None:
        pieces.append(f" CHANNEL {names_text(stream.channel)}")
    pieces += [f"\n  UNIQUE {{{', '.join(map(name_text, columns))}}}" for columns in stream.unique]
    for check in stream.checks:
        pieces += ["\n  CHECK ", _ExpressionPiece(check)]
    return pieces


def _advertisement(advertised: mmpl.Advertisement) -> list[_Piece]:
    condition = _ExpressionPiece(advertised.condition)
    return [f"ADVERTISE {name_text(advertised.relation)} WHERE ", condition, f" AS {name_text(advertised.name)}"]


def _view(view: mmpl.ViewDef) -> list[_Piece]:
    heading = f"{'LET' if view.shared else 'VIEW'} {name_text(view.name)} :="
    if isinstance(view.body, mmpl.RelationRef):
        return [heading, " ", name_text(view.body.name)]
    return [heading, _new_line(1), _RelationPiece(view.body, 1)]


# ── relations ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _new_line(indent: int) -> str:
    return "\n" + "  " * indent


def _pipeline(rel: mmpl.Rel, indent: int) -> list[_Piece]:
    operators: list[list[_Piece]] = []
    while not isinstance(rel, _Head):
        operators.append([_new_line(indent), *_operator(rel, indent)])
        rel = trees.inputs_of(rel)[0]
    return [piece for part in (_head(rel, indent), *reversed(operators)) for piece in part]


_Head = mmpl.RelationRef | mmpl.Imported | mmpl.Values | mmpl.Merge | mmpl.Union
"""What begins a relation."""


def _head(rel: _Head, indent: int) -> list[_Piece]:
    if isinstance(rel, mmpl.RelationRef):
        return [name_text(rel.name)]
    if isinstance(rel, mmpl.Imported):
        return _import_source(rel.source)
    if isinstance(rel, mmpl.Values):
        return _values(rel, indent)
    keyword = "MERGE" if isinstance(rel, mmpl.Merge) else "UNION"
    inputs = _separate(([_new_line(indent + 1), _RelationPiece(i, indent + 1)] for i in rel.inputs), ",")
    return [f"{keyword} {{", *inputs, _new_line(indent), "}"]


def _values(rel: mmpl.Values, indent: int) -> list[_Piece]:
    types = [data for _, data in rel.columns]
    rows = (
        ", ".join(_constant(mmpl.Constant(value, data)) for value, data in zip(row, types, strict=True))
        for row in rel.rows
    )
    lines = _separate(([f"{_new_line(indent + 1)}({row})"] for row in rows), ",")
    return [f"VALUES {{{_fields(rel.columns)}}} KEY {names_text(rel.key)} {{", *lines, _new_line(indent), "}"]


def _operator(rel: mmpl.Rel, indent: int) -> list[_Piece]:
    pieces: list[_Piece] = []
    for part in rel.line():
        match part:
            case str():
                pieces.append(part)
            case mmpl.Expr():
                pieces.append(_ExpressionPiece(part))
            case mmpl.Rel():
                pieces += _operand(part, indent)
    return pieces


def _operand(rel: mmpl.Rel, indent: int) -> list[_Piece]:
    if isinstance(rel, mmpl.RelationRef):
        return [name_text(rel.name)]
    return ["(", _new_line(indent + 1), _RelationPiece(rel, indent + 1), _new_line(indent), ")"]


# ── expressions ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _expression(expr: mmpl.Expr, level: int) -> list[_Piece]:
    own_level, pieces = _unparenthesised(expr)
    return pieces if own_level >= level else ["(", *pieces, ")"]


def _unparenthesised(expr: mmpl.Expr) -> tuple[int, list[_Piece]]:
    """The precedence level of the expression, and its pieces."""
    match expr:
        case mmpl.ColumnRef(name):
            return _PRIMARY, [name_text(name)]
        case mmpl.Constant():
            # An integer binds like a negation, so that the negation of 5 is -(5), and -5 is the constant.
            is_integer = expr.type == INT and expr.value is not None
            return (_NEG if is_integer else _PRIMARY), [_constant(expr)]
        case mmpl.Call():
            return _call(expr)
        case mmpl.Cast(arg, data_type):
            return _PRIMARY, ["CAST(", _ExpressionPiece(arg), f" AS {type_text(data_type)})"]
        case mmpl.Case(branches, otherwise):
            pieces: list[_Piece] = ["CASE"]
            for condition, value in branches:
                pieces += [" WHEN ", _ExpressionPiece(condition), " THEN ", _ExpressionPiece(value)]
            return _PRIMARY, [*pieces, " ELSE ", _ExpressionPiece(otherwise), " END"]
    raise AssertionError(type(expr))


def _call(call: mmpl.Call) -> tuple[int, list[_Piece]]:
    match call.args:
        case (left, right) if call.function in _INFIX:
            infix = _INFIX[call.function]
            return infix.level, [
                _ExpressionPiece(left, infix.left),
                f" {infix.symbol} ",
                _ExpressionPiece(right, infix.right),
            ]
        case (_, _, *_) if call.function in ("and", "or"):
            infix = _INFIX[call.function]
            return infix.level, _separate(([_ExpressionPiece(a, infix.left)] for a in call.args), f" {infix.symbol} ")
        case (arg,) if call.function in _POSTFIX:
            return _IS, [_ExpressionPiece(arg, _IS), f" {_POSTFIX[call.function]}"]
        case (arg,) if call.function == "not":
            return _NOT, ["NOT ", _ExpressionPiece(arg, _NOT)]
        case (arg,) if call.function == "neg":
            return _NEG, ["-", _ExpressionPiece(arg, _PRIMARY)]
    return _PRIMARY, [f"{name_text(call.function)}(", *_separate([_ExpressionPiece(a)] for a in call.args), ")"]


def _constant(constant: mmpl.Constant) -> str:
    value, data_type = constant.value, constant.type
    if value is None:
        return "NULL" if data_type == NULL else f"NULL {type_text(data_type)}"
    text = literal_text(value, data_type)
    if data_type == BOOL:
        return text.upper()
    if data_type in (INT, INTERVAL):
        return text
    if data_type.name == "array":
        return f"ARRAY {type_text(data_type.element)} '" + text.replace("'", "''") + "'"
    quoted = "'" + text.replace("'", "''") + "'"
    return quoted if data_type == STRING else f"{str(data_type).upper()} {quoted}"
