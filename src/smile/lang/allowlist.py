"""The part of SQL that SmileSQL supports. A tree that passes `check_allowed` has only nodes and clauses listed here.

The list contains what is allowed. Anything else that sqlglot can parse is therefore an error and never ignored.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from smile.errors import SmileError, error
from smile.lang.frames import frame_positions
from smile.lang.lexer import span_of_token
from smile.lang.nodes import (
    AGGREGATES,
    DERIVED_AGGREGATES,
    NEIGHBOUR_FUNCTIONS,
    PERCENTILES,
    RANKING_FUNCTIONS,
    ArrayAggregate,
    BestClause,
    NestedGroup,
    Percentile,
    SilenceCall,
    StreamFunction,
    StringAggregate,
)
from smile.lang.normal_forms import FIRST_CLAUSE
from smile.lang.spans import span_of

_USE_VIEWS_HINT = "Define the inner query as a view, or use WITH."
_COLLECT_HINT = (
    "GROUP(a, b) AS x collects columns of the members as a nested relation, ARRAY_AGG(a) the values of one as an array."
)
_NO_CLOCK_HINT = "A view depends only on events. In WHERE, t > NOW() - INTERVAL '1' DAY is true of the last day's rows."

REFUSED_WORDS: dict[TokenType, tuple[str, str | None]] = {
    TokenType.AMP: ("the operator &", "There are no operators on bits. % 2 and / 2 take a bit of a number."),
    TokenType.ANTI: ("ANTI JOIN", "Use NOT EXISTS or NOT IN."),
    TokenType.COLLATE: ("COLLATE", "Strings are ordered by code points."),
    TokenType.CURRENT_DATE: ("CURRENT_DATE", _NO_CLOCK_HINT),
    TokenType.CURRENT_TIME: ("CURRENT_TIME", _NO_CLOCK_HINT),
    TokenType.CURRENT_USER: ("CURRENT_USER", "A view depends only on events. Publish the user in a column."),
    TokenType.INTO: ("INTO", "Views store their rows automatically."),
    TokenType.LOCALTIME: ("LOCALTIME", _NO_CLOCK_HINT),
    TokenType.MATCH_RECOGNIZE: ("MATCH_RECOGNIZE", "Use joins, ASOF JOIN and SILENCE."),
    TokenType.OFFSET: ("OFFSET", 'Use LIMIT alone. Write a column of that name in quotes: "offset".'),
    TokenType.PIPE: ("the operator |", "Use || to concatenate strings."),
    TokenType.PIVOT: ("PIVOT", "Use CASE inside aggregates."),
    TokenType.RECURSIVE: (
        "WITH RECURSIVE",
        "Views cannot refer to each other in a circle. For a few steps, join the relation with itself.",
    ),
    TokenType.SEMI: ("SEMI JOIN", "Use EXISTS or IN."),
    TokenType.SIMILAR_TO: ("SIMILAR TO", "Use LIKE, or ~ with a regular expression."),
    TokenType.TABLE_SAMPLE: ("TABLESAMPLE", "Choose rows by a column: WHERE id % 10 = 0."),
    TokenType.UNPIVOT: ("UNPIVOT", "Use UNION ALL."),
}
_KSQL_WINDOW_HINT = "Write FROM TUMBLE(s, t, INTERVAL '1' HOUR), HOP or SESSION, and GROUP BY window_start."

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)

_BINARY_ARGS = {"this", "expression"}
_UNARY_ARGS = {"this"}
_PERCENTILE_ARGS = {"this", "fraction", "descending"}
_SET_OPERATION_ARGS = {"with_", "this", "expression", "distinct", "order", "limit"}
_ALLOWED_ARGS: dict[type[exp.Expr], set[str]] = {
    # queries
    exp.Select: {
        "with_",
        "expressions",
        "distinct",
        "from_",
        "joins",
        "where",
        "group",
        "having",
        "qualify",
        "order",
        "limit",
        "best",
    },
    exp.Union: _SET_OPERATION_ARGS,
    exp.Except: _SET_OPERATION_ARGS,
    exp.Intersect: _SET_OPERATION_ARGS,
    exp.Subquery: {"this", "alias"},
    exp.With: {"expressions"},
    exp.CTE: {"this", "alias"},
    exp.From: _UNARY_ARGS,
    exp.Join: {"this", "on", "using", "method", "side", "kind"},
    exp.Where: _UNARY_ARGS,
    exp.Having: _UNARY_ARGS,
    exp.Qualify: _UNARY_ARGS,
    exp.Group: {"expressions"},
    exp.GroupingSets: {"expressions"},
    exp.Rollup: {"expressions"},
    exp.Cube: {"expressions"},
    exp.Order: {"expressions"},
    exp.Ordered: {"this", "desc", "nulls_first"},
    exp.Limit: {"expression"},
    exp.Distinct: {"expressions"},
    exp.Table: {"this", "alias"},
    exp.Lateral: {"this", "alias"},
    exp.Unnest: {"expressions", "offset", "alias"},
    exp.TableAlias: {"this", "columns"},
    exp.Alias: {"this", "alias"},
    BestClause: {"this", "by", "per"},
    StreamFunction: {"this", "relations", "column", "intervals", "per", "zone", "alias"},
    # names and values
    exp.Identifier: {"this", "quoted"},
    exp.Column: {"this", "table"},
    exp.Star: {"except_"},
    exp.Tuple: {"expressions"},
    exp.Values: {"expressions", "alias"},
    exp.Literal: {"this", "is_string"},
    exp.Array: {"expressions"},
    exp.Bracket: {"this", "expressions"},
    exp.HexString: _UNARY_ARGS,
    exp.Boolean: _UNARY_ARGS,
    exp.Null: set(),
    exp.Interval: {"this", "unit"},
    exp.Var: _UNARY_ARGS,
    exp.DataType: {"this", "kind"},
    # operators
    exp.Paren: _UNARY_ARGS,
    exp.Neg: _UNARY_ARGS,
    exp.Not: _UNARY_ARGS,
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.And, exp.Or, exp.EQ, exp.NEQ), _BINARY_ARGS),
    **dict.fromkeys((exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Escape), _BINARY_ARGS),
    exp.Div: {*_BINARY_ARGS, "typed", "safe"},
    exp.DPipe: {*_BINARY_ARGS, "safe"},
    exp.Is: {*_BINARY_ARGS, "negate"},
    exp.Like: {*_BINARY_ARGS, "negate"},
    exp.ILike: {*_BINARY_ARGS, "negate"},
    exp.Between: {"this", "low", "high"},
    exp.In: {"this", "expressions", "query"},
    exp.Exists: _UNARY_ARGS,
    exp.Any: _UNARY_ARGS,
    exp.All: _UNARY_ARGS,
    exp.Case: {"this", "ifs", "default"},
    exp.If: {"this", "true"},
    exp.Cast: {"this", "to"},
    exp.Extract: _BINARY_ARGS,
    # functions
    exp.Anonymous: {"this", "expressions"},
    exp.CurrentTimestamp: set(),
    **dict.fromkeys((*AGGREGATES.values(), *DERIVED_AGGREGATES.values()), _UNARY_ARGS),
    **dict.fromkeys((exp.ArgMax, exp.ArgMin), _BINARY_ARGS),
    **dict.fromkeys(PERCENTILES.values(), _PERCENTILE_ARGS),
    exp.Count: {"this", "big_int"},
    StringAggregate: {"this", "separator", "order", "distinct", "descending"},
    ArrayAggregate: {"this", "order", "distinct", "descending", "filter"},
    NestedGroup: {"expressions"},
    SilenceCall: {"this", "per"},
    exp.Window: {"this", "partition_by", "order", "spec", "over"},
    exp.WindowSpec: {"kind", "start", "start_side", "end", "end_side"},
}

_REFUSED_NODES: dict[type[exp.Expr], tuple[str, str | None]] = {
    exp.Concat: ("a string in two parts", "Use || to concatenate strings."),
    exp.Dot: ("a name of more than two parts", "Relations have no schema: write relation.column."),
    exp.IgnoreNulls: ("IGNORE NULLS", "Select the rows WHERE x IS NOT NULL in a view, and join it with ASOF JOIN."),
    exp.AtTimeZone: ("AT TIME ZONE", "All times are UTC. For a fixed distance from it, write t + INTERVAL '2' HOUR."),
    exp.CastToStrType: ("CAST with a format", "Use TO_CHAR(t, 'YYYY-MM-DD')."),
    **dict.fromkeys(
        (exp.BitwiseLeftShift, exp.BitwiseRightShift), ("an operator on bits", "Use POWER(2, n), * and /.")
    ),
}

_REFUSED_ARGS: dict[tuple[type[exp.Expr], str], tuple[str, str | None]] = {
    (exp.Select, "offset"): ("OFFSET", "Use LIMIT alone."),
    (exp.Group, "all"): ("GROUP BY ALL or DISTINCT", "List the columns."),
    (exp.Limit, "limit_options"): ("LIMIT with options", "Use LIMIT alone."),
    **dict.fromkeys(
        ((exp.Union, "by_name"), (exp.Except, "by_name"), (exp.Intersect, "by_name")),
        ("UNION by name", "List the columns in the same order."),
    ),
    (exp.Select, "kind"): ("SELECT AS", None),
    (exp.Order, "this"): ("ORDER BY within a function", f"{_COLLECT_HINT} LATEST(x) is the x of the last row."),
    (exp.Table, "version"): (
        "FOR SYSTEM_TIME AS OF",
        "Use ASOF JOIN … ON l.k = r.k AND l.t >= r.t; a table with a primary key needs ON l.k = r.k alone.",
    ),
    (exp.Column, "db"): ("a name of more than two parts", "Relations have no schema: write relation.column."),
    (exp.Table, "db"): ("a qualified relation", "Relations have no schema: write the name alone."),
    (exp.Table, "joins"): ("a join in parentheses", _USE_VIEWS_HINT),
    (exp.Subquery, "order"): ("ORDER BY after a parenthesis", _USE_VIEWS_HINT),
    (exp.Subquery, "limit"): ("LIMIT after a parenthesis", _USE_VIEWS_HINT),
    (exp.Subquery, "joins"): ("a join in parentheses", _USE_VIEWS_HINT),
    (exp.WindowSpec, "exclude"): ("EXCLUDE", None),
    (exp.Star, "replace"): ("* REPLACE", "List the columns."),
    (exp.Star, "rename"): ("* RENAME", "List the columns."),
    (exp.Ordered, "with_fill"): ("WITH FILL", None),
    (exp.CTE, "materialized"): ("MATERIALIZED", "Omit MATERIALIZED or NOT MATERIALIZED."),
    (exp.Window, "alias"): ("this named window", "Define it in the same query, WINDOW w AS (…), and write OVER w."),
}


def refuse_words(tokens: Sequence[Token]) -> None:
    """Raises E013 at the first refused word. This runs before the query is parsed."""
    types = [token.token_type for token in tokens]
    for i, token in enumerate(tokens):
        refused = REFUSED_WORDS.get(token.token_type)
        following = types[i + 1] if i + 1 < len(types) else None
        if token.token_type == TokenType.FOR and following and tokens[i + 1].text.upper() in ("UPDATE", "SHARE"):
            refused = "FOR UPDATE", "There are no locks."
        if token.text.upper() == "EMIT" and following and tokens[i + 1].text.upper() in ("CHANGES", "FINAL", "ON"):
            refused = "EMIT", "Every view delivers its changes, and says which rows are final."
        is_window = token.token_type == TokenType.WINDOW and following
        if is_window and tokens[i + 1].text.upper() in ("TUMBLING", "HOPPING", "SESSION"):
            refused = "WINDOW", _KSQL_WINDOW_HINT
        if refused:
            raise error("E013", f"{refused[0]} is not supported", span_of_token(token), refused[1])


def check_allowed(root: exp.Expr, text: str) -> None:
    """Raises E013 at the first node that SmileSQL does not support, or another error if the node is incomplete."""
    for node in root.walk(bfs=False):
        kind = type(node)
        if kind not in _ALLOWED_ARGS:
            raise _unsupported_error(node, *_REFUSED_NODES.get(kind, (_quote_source(node, text), None)))
        for key, value in node.args.items():
            if key not in _ALLOWED_ARGS[kind] and not (value is None or value == []):
                raise _unsupported_error(node, *_REFUSED_ARGS.get((kind, key), (_quote_source(node, text), None)))
        if rule := _NODE_CHECKS.get(kind):
            rule(node)


def _quote_source(node: exp.Expr, text: str) -> str:
    span = span_of(node)
    words = " ".join(text[span.start : span.end].split()) if span else node.key
    return f"`{words}`" if len(words) <= 40 else f"`{words[:39]}…`"


def _unsupported_error(node: exp.Expr, construct: str, hint: str | None = None) -> SmileError:
    return error("E013", f"{construct} is not supported", span_of(node), hint)


def _check_select(node: exp.Expr) -> None:
    if not node.expressions:
        raise error("E010", "expected a column after SELECT", span_of(node))
    if not node.args.get("from_"):
        hint = "Every row of a view comes from streams: add FROM."
        raise error("E040", "a query without FROM has no key", span_of(node), hint)

    _check_clause_order(node)


def _check_clause_order(node: exp.Expr) -> None:
    """sqlglot accepts the clauses in any order."""
    clauses = ["WHERE", "GROUP", "HAVING", "QUALIFY", "BEST", "ORDER", "LIMIT"]
    present = [
        (clause, span)
        for clause in clauses
        if (part := node.args.get(clause.lower())) and not part.meta.get(FIRST_CLAUSE) and (span := span_of(part))
    ]
    for (earlier, before), (later, after) in pairwise(present):
        if after.start < before.start:
            clause_names = {"GROUP": "GROUP BY", "ORDER": "ORDER BY"}
            raise error(
                "E010",
                f"{clause_names.get(earlier, earlier)} must come before {clause_names.get(later, later)}",
                before,
            )


def _check_group(node: exp.Expr) -> None:
    if not node.expressions:
        raise error("E010", "expected a column after GROUP BY", span_of(node))


def _check_union(node: exp.Expr) -> None:
    for side in (node.this, node.expression):
        if isinstance(side, exp.Select) and (side.args.get("order") or side.args.get("limit")):
            raise _unsupported_error(side, "ORDER BY or LIMIT inside UNION", "Put that query in parentheses.")
    _check_clause_order(node)


def _check_limit(node: exp.Expr) -> None:
    k = node.this if isinstance(node, BestClause) else node.expression
    if not isinstance(k, exp.Literal) or k.is_string or not k.name.isdecimal():
        raise error("E033", f"{'BEST' if isinstance(node, BestClause) else 'LIMIT'} takes a whole number", span_of(k))


def _check_subquery(node: exp.Expr) -> None:
    if isinstance(node.this, exp.Table | StreamFunction) and not node.this.args.get("joins"):
        raise _unsupported_error(node, "a relation in parentheses", "Leave the parentheses out.")


def _check_join(node: exp.Expr) -> None:
    words = {node.args.get(key) for key in ("method", "side", "kind")} - {None, ""}
    if not words <= {"ASOF", "NATURAL", "LEFT", "RIGHT", "FULL", "INNER", "OUTER", "CROSS"}:
        raise _unsupported_error(node, f"{' '.join(sorted(str(w) for w in words))} JOIN")
    if {"NATURAL", "CROSS"} <= words:
        raise _unsupported_error(node, "NATURAL CROSS JOIN", "Use NATURAL JOIN or CROSS JOIN.")
    if "ASOF" in words and words & {"RIGHT", "FULL", "CROSS"}:
        raise _unsupported_error(node, "this ASOF JOIN", "Use ASOF JOIN or ASOF LEFT JOIN.")
    if "OUTER" in words and not words & {"LEFT", "RIGHT", "FULL"}:
        raise error("E010", "expected LEFT, RIGHT or FULL before OUTER", span_of(node))


def _check_distinct(node: exp.Expr) -> None:
    if isinstance(node.parent, exp.Select):
        return
    aggregate = node.parent
    if not isinstance(aggregate, _DISTINCT_AGGREGATES):
        hint = (
            "SUM, AVG, COUNT, MIN, MAX, STRING_AGG and variances take it. Else aggregate a view with SELECT DISTINCT."
        )
        raise _unsupported_error(node, "DISTINCT in this function", hint)
    if len(node.expressions) != 1 and not isinstance(aggregate, exp.Count):
        raise error("E032", f"{aggregate.key.upper()} takes one argument", span_of(node))


_DISTINCT_AGGREGATES = (exp.Count, exp.Sum, exp.Avg, exp.Variance, exp.VariancePop, exp.StddevSamp, exp.StddevPop)


def _check_table(node: exp.Expr) -> None:
    if not isinstance(node.this, exp.Identifier):
        name = node.this.name if isinstance(node.this, exp.Anonymous) else "this relation"
        hint = "The functions allowed in FROM are TUMBLE, HOP, SESSION, LAST and MERGE."
        if name.upper() == "UNGROUP":
            hint = "The rows of a nested relation are those of the query that it was made of."
        elif name.upper() == "CUMULATE":
            hint = CUMULATE_HINT
        elif name.upper() == "GENERATE_SERIES":
            hint = "Write the numbers: FROM (VALUES (1), (2), (3)) AS s (n)."
        raise _unsupported_error(node, f"{name} in FROM", hint)


def _check_alias(node: exp.Expr) -> None:
    if not isinstance(node.parent, exp.Select):
        raise error("E010", "AS is allowed only in a select list", span_of(node))


def _check_star(node: exp.Expr) -> None:
    parent = node.parent
    if isinstance(parent, exp.Column):
        parent = parent.parent if isinstance(parent.parent, exp.Select) else None
    if not isinstance(parent, exp.Select | exp.Count):
        raise error("E010", "* is allowed only in a select list or in COUNT", span_of(node))
    excluded = node.args.get("except_") or []
    for column in excluded:
        if not isinstance(column, exp.Column) or column.table or isinstance(parent, exp.Count):
            raise error("E010", "expected the name of a column after EXCEPT", span_of(column))


def _check_tuple(node: exp.Expr) -> None:
    if isinstance(node.parent, exp.GroupingSets | exp.Rollup | exp.Cube | exp.Values):
        return
    if isinstance(node.parent, exp.Group) and not node.expressions:
        raise _unsupported_error(
            node, "GROUP BY ()", "Omit it: a query with aggregates and without GROUP BY has one row."
        )
    parent = node.parent
    if isinstance(parent, exp.Distinct) and isinstance(parent.parent, exp.Count) and len(parent.expressions) == 1:
        return
    if not isinstance(node.parent, (exp.In, *_COMPARISONS)) or len(node.expressions) < 2:
        hint = "A list can only be compared, or counted by COUNT(DISTINCT (a, b)). Write conditions of its parts."
        raise _unsupported_error(node, "a list of values here", hint)


def _check_lateral(node: exp.Expr) -> None:
    if not isinstance(node.this, exp.Subquery) or not isinstance(node.parent, exp.Join):
        raise _unsupported_error(node, "this LATERAL", "Write FROM a JOIN LATERAL (SELECT …) AS s ON TRUE.")


def _check_quantifier(node: exp.Expr) -> None:
    """ANY and ALL are the right operand of a comparison, and have a query."""
    name = node.key.upper()
    if not isinstance(node.parent, _COMPARISONS) or node.parent.expression is not node:
        raise _unsupported_error(node, f"{name} here", f"Write x > {name} (SELECT …).")
    if not isinstance(node.this, exp.Query):
        raise _unsupported_error(node, f"{name} of a list", "Use IN (…), or GREATEST and LEAST.")


def _check_is(node: exp.Expr) -> None:
    if not isinstance(node.expression, exp.Null | exp.Boolean):
        hint = "Write IS NULL." if node.expression.name.upper() == "UNKNOWN" else None
        raise error("E010", "expected NULL, TRUE, FALSE or DISTINCT FROM after IS", span_of(node), hint)


def _check_call(node: exp.Expr) -> None:
    if not isinstance(node.this, str):
        raise _unsupported_error(node, "a function with a quoted name")
    if node.this.upper() == "EXISTS":
        raise error("E010", "EXISTS takes a query", span_of(node), "Write EXISTS (SELECT …).")


def _check_columns_only(node: exp.Expr) -> None:
    parts = [*node.expressions, *(node.args.get("per") or ())]
    if isinstance(node, SilenceCall):
        parts.append(node.this)
    for part in parts:
        if not isinstance(part, exp.Column) or isinstance(part.this, exp.Star):
            raise error("E010", "expected a column", span_of(part))
    if isinstance(node, NestedGroup) and not parts:
        raise error("E032", "GROUP takes at least one column", span_of(node))


def _check_percentile(node: exp.Expr) -> None:
    assert isinstance(node, Percentile)
    fraction, name = node.fraction, _PERCENTILE_NAMES[type(node)]
    if node.this is None:
        hint = f"Write {name}(0.5) WITHIN GROUP (ORDER BY x)."
        raise error("E010", f"{name} needs WITHIN GROUP (ORDER BY …)", span_of(node), hint)
    number = fraction.name if isinstance(fraction, exp.Literal) and not fraction.is_string else ""
    if not number or not 0 <= float(number) <= 1:
        advice = "Write one aggregate for each fraction." if isinstance(fraction, exp.Anonymous | exp.Tuple) else None
        raise error("E033", f"{name} takes a number from 0 to 1", span_of(fraction) or span_of(node), advice)


_PERCENTILE_NAMES = {node: name for name, node in PERCENTILES.items()}


def _check_string_aggregate(node: exp.Expr) -> None:
    assert isinstance(node, StringAggregate)
    separator = node.args["separator"]
    if not isinstance(separator, exp.Literal) or not separator.is_string:
        raise error("E033", "the separator of STRING_AGG is a string", span_of(separator) or span_of(node))


def _check_stream_function(node: exp.Expr) -> None:
    if isinstance(node, StreamFunction) and node.kind == "merge" and len(node.relations) < 2:
        raise error("E032", "MERGE takes at least two relations", span_of(node))
    for column in node.args.get("per") or ():
        if not isinstance(column, exp.Column) or isinstance(column.this, exp.Star):
            raise error("E010", "expected a column", span_of(column), "Compute it in a subquery.")


OVER_HINT = (
    "OVER takes SUM, COUNT, MIN, MAX, AVG, LATEST, EARLIEST, BOOL_AND, BOOL_OR, FIRST_VALUE, LAST_VALUE, LAG and LEAD, "
    "and in QUALIFY ROW_NUMBER, RANK and DENSE_RANK."
)
CUMULATE_HINT = "A row of TUMBLE shows what is known so far, before its window is over."
_WINDOW_FUNCTION_HINTS = {
    **dict.fromkeys(("NTILE", "PERCENT_RANK", "CUME_DIST"), "Use WIDTH_BUCKET, or ROW_NUMBER() with QUALIFY."),
    "NTH_VALUE": "FIRST_VALUE, LAST_VALUE, LAG(x, n) and LEAD(x, n) are values of one row.",
}


def _check_window(node: exp.Expr) -> None:
    function = node.this
    if isinstance(function, exp.Anonymous) and function.name.upper() in RANKING_FUNCTIONS:
        if function.expressions:
            raise error("E032", f"{function.name.upper()} takes no arguments", span_of(function))
        if node.args.get("order") is None or node.args.get("spec") is not None:
            raise error("E010", f"{function.name.upper()} needs OVER (… ORDER BY …), without a frame", span_of(node))
    elif isinstance(function, exp.Anonymous) and function.name.upper() in NEIGHBOUR_FUNCTIONS:
        if not 1 <= len(function.expressions) <= 3:
            raise error("E032", f"{function.name.upper()} takes one to three arguments", span_of(function))
        if node.args.get("spec") is not None:
            raise error("E010", f"{function.name.upper()} has no frame", span_of(node))
    elif not isinstance(function, exp.AggFunc):
        name = function.name.upper() if isinstance(function, exp.Anonymous) else ""
        hint = _WINDOW_FUNCTION_HINTS.get(name, OVER_HINT)
        raise _unsupported_error(node, "this function OVER a window", hint)


def _check_window_spec(node: exp.Expr) -> None:
    args = node.args
    if isinstance(node, exp.WindowSpec) and args.get("kind") == "ROWS":
        frame_positions(node)
        return
    if args.get("kind") != "RANGE" or args.get("start_side") != "PRECEDING" or args.get("end"):
        raise _unsupported_error(
            node, "this frame", "Use RANGE INTERVAL … PRECEDING, RANGE UNBOUNDED PRECEDING or ROWS."
        )


_NODE_CHECKS: dict[type[exp.Expr], Callable[[exp.Expr], None]] = {
    exp.Select: _check_select,
    exp.Group: _check_group,
    **dict.fromkeys((exp.Union, exp.Except, exp.Intersect), _check_union),
    exp.Limit: _check_limit,
    exp.Subquery: _check_subquery,
    exp.Join: _check_join,
    exp.Distinct: _check_distinct,
    exp.Table: _check_table,
    exp.Alias: _check_alias,
    exp.Star: _check_star,
    exp.Tuple: _check_tuple,
    **dict.fromkeys((exp.Any, exp.All), _check_quantifier),
    exp.Lateral: _check_lateral,
    exp.Is: _check_is,
    exp.Anonymous: _check_call,
    exp.Window: _check_window,
    exp.WindowSpec: _check_window_spec,
    BestClause: _check_limit,
    SilenceCall: _check_columns_only,
    NestedGroup: _check_columns_only,
    **dict.fromkeys(PERCENTILES.values(), _check_percentile),
    StringAggregate: _check_string_aggregate,
    StreamFunction: _check_stream_function,
}
