"""docs/reference/functions.md: every scalar function and aggregate, with examples that are computed here.

The arguments of the examples are those that the tests of the functions use.
"""

from collections.abc import Iterator
from decimal import Decimal

from smile.algebra.functions import arithmetic, logic, regular_expressions, text, time, time_formats, time_parsing
from smile.algebra.functions.base import Monotonicity, ScalarFunction
from smile.algebra.functions.catalogue import evaluate_expr
from smile.algebra.mmpl import Cast, Constant
from smile.algebra.types import STRING, TIMESTAMP, DataType, Value
from smile.lang import AGGREGATES, DERIVED_AGGREGATES
from smile.lang.nodes import AGGREGATE_SYNONYMS
from smile.program import compile_program
from smile.reference.evaluate import evaluate
from smile.reference.history import History
from smile.reference.wire import snapshot_messages
from smile.source import Source
from smile.testing.cells import print_cell
from smile.translate.function_names import SYNONYMS
from tests.algebra.test_scalars import EXAMPLES, NOON, run, type_of_value
from tests.programs.reader import analyse
from tools.reference.markdown import code, page, table

GROUPS = (
    ("Numbers", arithmetic), ("Conditions and any type", logic), ("Text", text),
    ("Regular expressions", regular_expressions), ("Time", time), ("Formats of time", time_formats),
    ("Times in texts", time_parsing),
)  # fmt: skip
EXAMPLES_MAX = 3
NOON_TEXT = "TIMESTAMP '2024-02-29 12:00:00.123456'"
TIME_EXAMPLES: dict[str, str] = {"date_trunc": "hour", "period_end": "month", "to_char": "YYYY-MM-DD HH24:MI"}
SIGNS = {
    Monotonicity.INCREASING: "↑",
    Monotonicity.DECREASING: "↓",
    Monotonicity.MONOTONE: "↕",
    Monotonicity.NOT_MONOTONE: "–",
}
INTRODUCTION = """
Functions do what they do in PostgreSQL, except that overflow and division by zero give NULL. [The
language](../language.md#functions) has the overview.

The column *grows* says how the result moves when an argument rises: ↑ it rises or stays, ↓ it falls or stays, ↕ one
of the two, depending on the other arguments, – neither. So it says what a bound is worth: `ABS(x)` of an `x` that is
at least 3 is at least 3; of a function with –, nothing is known until the argument is final. The last sign holds for
all further arguments.
"""
AGGREGATE_INTRODUCTION = """
Over the rows below, in a window of an hour: what is shown after the third row, while the hour is open, and when it is
over. A cell is written as in [test files](../howto/testing.md#the-notation).

| t | x | y | b |
|---|---|---|---|
| 1 min | 5 | 1 | true |
| 2 min | 2 | 9 | true |
| 3 min | 7 | 4 | false |
"""
STREAM = "CREATE STREAM S (t: time -> x: int, y: int, b: bool);"
EVENTS = [{"x": 5, "y": 1, "b": True}, {"x": 2, "y": 9, "b": True}, {"x": 7, "y": 4, "b": False}]
MINUTE = 60 * 1_024_000_000


def functions_page() -> str:
    sections = [f"## {title}\n\n{_functions_table(module.FUNCTIONS)}" for title, module in GROUPS]
    aggregates = table(
        ["aggregate", "other names", "while open", "when it is over"], (_aggregate_row(call) for call in _calls())
    )
    return page("Functions", INTRODUCTION, *sections, f"## Aggregates\n{AGGREGATE_INTRODUCTION}\n{aggregates}")


def _functions_table(functions: tuple[ScalarFunction, ...]) -> str:
    rows = []
    for function in functions:
        examples = "<br>".join(code(example) for example in _examples(function.name))
        grows = " ".join(SIGNS[m] for m in function.monotonicity)
        rows.append([code(_sql_name(function.name)), ", ".join(map(code, _synonyms(function.name))), grows, examples])
    return table(["function", "other names", "grows", "examples"], rows)


def _sql_name(name: str) -> str:
    if name == "neg":
        return "-x"
    return f"EXTRACT({name.removeprefix('extract_').upper()} FROM …)" if name.startswith("extract_") else name.upper()


def _synonyms(name: str) -> list[str]:
    return sorted(other.upper() for other, of in SYNONYMS.items() if of == name)


def _examples(name: str) -> Iterator[str]:
    if name.startswith("extract_"):
        yield _shown(f"EXTRACT({name.removeprefix('extract_').upper()} FROM {NOON_TEXT})", name, (NOON,), (TIMESTAMP,))
    elif name in ("date_trunc", "period_end"):
        unit = TIME_EXAMPLES[name]
        yield _shown(f"{name.upper()}('{unit}', {NOON_TEXT})", name, (unit, NOON), (STRING, TIMESTAMP))
        zone = "Europe/Berlin"
        call = f"{name.upper()}('day', {NOON_TEXT}, '{zone}')"
        yield _shown(call, name, ("day", NOON, zone), (STRING, TIMESTAMP, STRING))
    elif name == "to_timestamp":
        text, format_ = "29 Feb 2024", "DD Mon YYYY"
        yield _shown(f"TO_TIMESTAMP('{text}', '{format_}')", name, (text, format_), (STRING, STRING))
    elif name == "to_char":
        format_ = TIME_EXAMPLES[name]
        yield _shown(f"TO_CHAR({NOON_TEXT}, '{format_}')", name, (NOON, format_), (TIMESTAMP, STRING))
    else:
        for values, _ in EXAMPLES[name][:EXAMPLES_MAX]:
            yield _shown(_call(name, [_literal(v) for v in values]), name, values, tuple(map(type_of_value, values)))


def _shown(call: str, name: str, values: tuple[Value, ...], types: tuple[DataType, ...]) -> str:
    result = run(name, values, types)
    if name in ("date_trunc", "period_end", "to_timestamp"):
        result = evaluate_expr(Cast(Constant(result, TIMESTAMP), STRING), {}, {})
    return f"{call} → {_literal(result)}"


def _call(name: str, arguments: list[str]) -> str:
    if name == "neg":
        return f"-({arguments[0]})"
    if name == "not":
        return f"NOT {arguments[0]}"
    if name.startswith("is ") and len(arguments) == 1:
        return f"{arguments[0]} {name.upper()}"
    if name == "like" and len(arguments) == 3:
        return f"{arguments[0]} LIKE {arguments[1]} ESCAPE {arguments[2]}"
    if not name.isidentifier() or name in ("and", "or", "like", "ilike"):
        return f" {name.upper()} ".join(arguments)
    return f"{name.upper()}({', '.join(arguments)})"


def _literal(value: Value) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case str():
            quoted = value.replace("'", "''").replace("\n", "⏎").replace("\t", "⇥")
            return f"'{quoted}'"
        case bytes():
            return f"BYTES '\\x{value.hex()}'"
        case Decimal() | int() | float():
            return str(value)
    raise TypeError(value)


def _calls() -> Iterator[tuple[str, str]]:
    """The name of each aggregate, and a call of it."""
    for name in [*AGGREGATES, *DERIVED_AGGREGATES]:
        arguments = "x, y" if name.startswith("ARG_") else "b" if name.startswith("BOOL_") else "x"
        yield name, f"{name}({arguments})"
    yield "COUNT", "COUNT(*)"
    yield "COUNT", "COUNT(DISTINCT b)"
    yield "GROUP", "GROUP(x, y)"


def _aggregate_row(call: tuple[str, str]) -> list[str]:
    name, text_ = call
    others = [other for other, of in AGGREGATE_SYNONYMS.items() if of == name]
    return [code(text_), ", ".join(map(code, others)), *(code(shown) for shown in _aggregate_cells(text_))]


def _aggregate_cells(call: str) -> Iterator[str]:
    view = f"SELECT window_end, {call} AS r FROM TUMBLE(S, t, INTERVAL '1' HOUR) GROUP BY window_end"
    program = compile_program(Source("reference", f"{STREAM} CREATE VIEW V AS {view}; SUBSCRIBE V;")).rewritten
    analysis = analyse(program)
    lines = [{"stream": "S", "at": n * MINUTE, "event": event} for n, event in enumerate(EVENTS, 1)]
    history = History.from_lines(program, lines)
    for known in (history, history.with_finished_streams()):
        shown = evaluate(program, analysis, known)["V"]
        (row,) = snapshot_messages("V", analysis.relations["V"], shown).values()
        evolving = row["knowledge"].get("r", {"exactly": row["row"]["r"]})
        yield print_cell(row["row"]["r"], evolving, analysis.relations["V"].columns["r"].data)
