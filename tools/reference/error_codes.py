"""docs/reference/errors.md: every code with the messages and hints that the code has for it.

They are read from the syntax trees of the modules: a call with a code, a message and perhaps a hint.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import smile
from smile.errors import CATALOGUE
from tools.reference.markdown import page, table

SOURCE = Path(smile.__file__).parent
CODE = re.compile(r"[EW]\d{3}")
INTRODUCTION = """
Codes are stable: they are never reused. For each, this page has the messages that SMILE prints and, where it can say
so, what to do. `…` stands for names and values. An error about a program has a position `file:line:col` too.
`SmileError.code`, `.hint` and `.diagnostics` have the same in Python. [When something is wrong with a
broker](../operating.md) is ordered by symptoms.
"""


@dataclass(frozen=True)
class RaisedError:
    code: str
    message: str
    hint: str


def errors_page() -> str:
    by_code: dict[str, dict[RaisedError, None]] = {code: {} for code in CATALOGUE}
    for path in sorted(SOURCE.rglob("*.py")):
        for raised in _raised_errors(ast.parse(path.read_text())):
            by_code[raised.code].setdefault(raised)
    for raised_errors in by_code.values():
        with_hint = {raised.message for raised in raised_errors if raised.hint}
        for raised in [r for r in raised_errors if not r.hint and r.message in with_hint]:
            del raised_errors[raised]
    rows = [
        [f"**{code}**" if n == 0 else "", meaning if n == 0 else "", raised.message, raised.hint]
        for code, meaning in CATALOGUE.items()
        for n, raised in enumerate(sorted(by_code[code], key=str) or [RaisedError(code, "", "")])
    ]
    return page("Errors", INTRODUCTION, table(["code", "meaning", "messages", "what to do"], rows))


def _raised_errors(module: ast.Module) -> Iterator[RaisedError]:
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for scope in [module, *functions]:
        texts = _assigned_texts(scope)
        for node in _nodes_of(scope):
            if isinstance(node, ast.Call):
                yield from _raised_by(node, texts)


def _nodes_of(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module or a function, without those of functions within it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _nodes_of(child)


def _assigned_texts(scope: ast.AST) -> dict[str, list[tuple[int, str]]]:
    """For each variable the lines in which it gets a text, and the texts."""
    texts: dict[str, list[tuple[int, str]]] = {}
    for node in _nodes_of(scope):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if text := _template(value, {}):
                texts.setdefault(name, []).append((node.lineno, text))
    return texts


def _raised_by(call: ast.Call, texts: Mapping[str, Sequence[tuple[int, str]]]) -> Iterator[RaisedError]:
    for number, argument in enumerate(call.args):
        if isinstance(argument, ast.Constant) and CODE.fullmatch(str(argument.value)) and argument.value in CATALOGUE:
            before = {n: [t for line, t in known if line <= call.lineno][-1:] for n, known in texts.items()}
            latest = {name: known[0] for name, known in before.items() if known}
            rest = call.args[number + 1 :]
            hints = [k.value for k in call.keywords if k.arg == "hint"] or rest[2:3]
            message = _template(rest[0], latest) if rest else ""
            hint = _template(hints[0], latest) if hints else ""
            if message:
                yield RaisedError(str(argument.value), message, hint)
            return


def _template(node: ast.expr, texts: Mapping[str, str]) -> str:
    """The text of an expression, with `…` for what is computed. Empty if all of it is."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            text = "".join(_template(part, texts) or "…" for part in parts)
            return text if re.search(r"\w", text) else ""
        case ast.Name(id=name):
            return texts.get(name, "")
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _template(left, texts) + (_template(right, texts) or "…")
        case ast.IfExp(body=body, orelse=orelse):
            return " / ".join(filter(None, (_template(body, texts), _template(orelse, texts))))
        case ast.BoolOp(op=ast.Or(), values=values):
            return " / ".join(filter(None, (_template(value, texts) for value in values)))
    return ""
