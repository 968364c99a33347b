"""The part of SQL that SmileSQL supports. A tree that passes `check_allowed` has only nodes and clauses listed here.

The list contains what is allowed. Anything else that sqlglot can parse is therefore an error and never ignored.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from smile.errors import SmileError, error
from smile.lang.lexer import span_of_token
from smile.lang.nodes import AGGREGATES, BestClause, NestedGroup, SilenceCall, StreamFunction
from smile.lang.spans import span_of

_USE_VIEWS_HINT = "Define the inner query as a view, or use WITH."
_NO_CLOCK_HINT = "A view depends only on events. LAST(s, t, INTERVAL …) has the events of the last interval."

REFUSED_WORDS: dict[TokenType, tuple[str, str | None]] = {
    TokenType.AMP: ("the operator &", None),
    TokenType.ANTI: ("ANTI JOIN", "Use NOT EXISTS or NOT IN."),
    TokenType.ANY: ("ANY", "Use IN or EXISTS."),
    TokenType.ARROW: ("the operator ->", "-> is allowed only in CREATE STREAM, after the tick."),
    TokenType.CARET: ("the operator ^", "Use POWER(a, b)."),
    TokenType.COLLATE: ("COLLATE", "Strings are ordered by code points."),
    TokenType.CUBE: ("CUBE", "Write a view for each GROUP BY."),
    TokenType.CURRENT_DATE: ("CURRENT_DATE", _NO_CLOCK_HINT),
    TokenType.CURRENT_TIME: ("CURRENT_TIME", _NO_CLOCK_HINT),
    TokenType.CURRENT_TIMESTAMP: ("CURRENT_TIMESTAMP", _NO_CLOCK_HINT),
    TokenType.CURRENT_USER: ("CURRENT_USER", None),
    TokenType.EXCEPT: ("EXCEPT", "Use NOT EXISTS."),
    TokenType.FETCH: ("FETCH", "Use LIMIT."),
    TokenType.GROUPING_SETS: ("GROUPING SETS", "Write a view for each GROUP BY."),
    TokenType.INTERSECT: ("INTERSECT", "Use EXISTS."),
    TokenType.INTO: ("INTO", "Views store their rows automatically."),
    TokenType.L_BRACKET: ("an array", None),
    TokenType.LATERAL: ("LATERAL", "Use a JOIN."),
    TokenType.LOCALTIME: ("LOCALTIME", _NO_CLOCK_HINT),
    TokenType.LOCALTIMESTAMP: ("LOCALTIMESTAMP", _NO_CLOCK_HINT),
    TokenType.MATCH_RECOGNIZE: ("MATCH_RECOGNIZE", "Use joins, ASOF JOIN and SILENCE."),
    TokenType.OFFSET: ("OFFSET", 'Use LIMIT alone. Write a column of that name in quotes: "offset".'),
    TokenType.PIPE: ("the operator |", "Use || to concatenate strings."),
    TokenType.PIVOT: ("PIVOT", "Use CASE inside aggregates."),
    TokenType.QUALIFY: ("QUALIFY", "Use WHERE around a subquery."),
    TokenType.RECURSIVE: ("WITH RECURSIVE", None),
    TokenType.RLIKE: ("the operator ~", "Use LIKE."),
    TokenType.ROLLUP: ("ROLLUP", "Write a view for each GROUP BY."),
    TokenType.SEMI: ("SEMI JOIN", "Use EXISTS or IN."),
    TokenType.SIMILAR_TO: ("SIMILAR TO", "Use LIKE."),
    TokenType.SOME: ("SOME", "Use IN or EXISTS."),
    TokenType.TABLE_SAMPLE: ("TABLESAMPLE", None),
    TokenType.UNNEST: ("UNNEST", None),
    TokenType.UNPIVOT: ("UNPIVOT", "Use UNION ALL."),
    TokenType.VALUES: ("VALUES", "Rows come from streams."),
    TokenType.WINDOW: ("WINDOW", "Write the window definition after each OVER."),
}

_COMPARISONS = (TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE)

_BINARY_ARGS = {"this", "expression"}
_UNARY_ARGS = {"this"}
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
        "order",
        "limit",
        "best",
    },
    exp.Union: {"with_", "this", "expression", "distinct", "order", "limit"},
    exp.Subquery: {"this", "alias"},
    exp.With: {"expressions"},
    exp.CTE: {"this", "alias"},
    exp.From: _UNARY_ARGS,
    exp.Join: {"this", "on", "using", "method", "side", "kind"},
    exp.Where: _UNARY_ARGS,
    exp.Having: _UNARY_ARGS,
    exp.Group: {"expressions"},
    exp.Order: {"expressions"},
    exp.Ordered: {"this", "desc", "nulls_first"},
    exp.Limit: {"expression"},
    exp.Distinct: {"expressions"},
    exp.Table: {"this", "alias"},
    exp.TableAlias: {"this", "columns"},
    exp.Alias: {"this", "alias"},
    BestClause: {"this", "by", "per"},
    StreamFunction: {"this", "relations", "column", "intervals", "alias"},
    # names and values
    exp.Identifier: {"this", "quoted"},
    exp.Column: {"this", "table"},
    exp.Star: set(),
    exp.Literal: {"this", "is_string"},
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
    exp.Case: {"this", "ifs", "default"},
    exp.If: {"this", "true"},
    exp.Cast: {"this", "to"},
    exp.Extract: _BINARY_ARGS,
    # functions
    exp.Anonymous: {"this", "expressions"},
    **dict.fromkeys(AGGREGATES.values(), _UNARY_ARGS),
    exp.Count: {"this", "big_int"},
    NestedGroup: {"expressions"},
    SilenceCall: {"this", "per"},
    exp.Window: {"this", "partition_by", "order", "spec", "over"},
    exp.WindowSpec: {"kind", "start", "start_side", "end", "end_side"},
}

_REFUSED_NODES: dict[type[exp.Expr], tuple[str, str | None]] = {
    exp.Tuple: ("a list of values", "Use EXISTS, or compare the columns one by one."),
    exp.Concat: ("a string in two parts", "Use || to concatenate strings."),
    exp.Filter: ("FILTER", "Use CASE inside the aggregate."),
    exp.Dot: ("a name of more than two parts", "Relations have no schema."),
    exp.WithinGroup: ("WITHIN GROUP", None),
    exp.IgnoreNulls: ("IGNORE NULLS", None),
    exp.AtTimeZone: ("AT TIME ZONE", None),
    exp.CastToStrType: ("CAST with a format", None),
}

_REFUSED_ARGS: dict[tuple[type[exp.Expr], str], tuple[str, str | None]] = {
    (exp.Select, "offset"): ("OFFSET", "Use LIMIT alone."),
    (exp.Group, "all"): ("GROUP BY ALL or DISTINCT", "List the columns."),
    (exp.Limit, "limit_options"): ("LIMIT with options", "Use LIMIT alone."),
    (exp.Union, "by_name"): ("UNION by name", "List the columns in the same order."),
    (exp.Select, "kind"): ("SELECT AS", None),
    (exp.Column, "db"): ("a name of more than two parts", "Relations have no schema."),
    (exp.Table, "db"): ("a qualified relation", "Relations have no schema."),
    (exp.Table, "joins"): ("a join in parentheses", _USE_VIEWS_HINT),
    (exp.Subquery, "order"): ("ORDER BY after a parenthesis", _USE_VIEWS_HINT),
    (exp.Subquery, "limit"): ("LIMIT after a parenthesis", _USE_VIEWS_HINT),
    (exp.Subquery, "joins"): ("a join in parentheses", _USE_VIEWS_HINT),
    (exp.WindowSpec, "exclude"): ("EXCLUDE", None),
    (exp.Star, "except_"): ("* EXCEPT", "List the columns."),
    (exp.Star, "replace"): ("* REPLACE", "List the columns."),
    (exp.Star, "rename"): ("* RENAME", "List the columns."),
    (exp.Ordered, "with_fill"): ("WITH FILL", None),
    (exp.CTE, "materialized"): ("MATERIALIZED", "Omit MATERIALIZED or NOT MATERIALIZED."),
    (exp.Window, "alias"): ("a named window", "Write the window definition after OVER."),
}


def refuse_words(tokens: Sequence[Token]) -> None:
    """Raises E013 at the first refused word. This runs before the query is parsed."""
    types = [token.token_type for token in tokens]
    for i, token in enumerate(tokens):
        refused = REFUSED_WORDS.get(token.token_type)
        following = types[i + 1] if i + 1 < len(types) else None
        if token.token_type == TokenType.FOR and following and tokens[i + 1].text.upper() in ("UPDATE", "SHARE"):
            refused = "FOR UPDATE", "There are no locks."
        elif token.token_type == TokenType.DISTINCT and following == TokenType.ON:
            refused = "DISTINCT ON", "Use BEST 1 BY … PER …."
        elif token.token_type == TokenType.ALL and following == TokenType.L_PAREN and types[i - 1] in _COMPARISONS:
            refused = "ALL", "Use NOT EXISTS."
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
    clauses = ["WHERE", "GROUP", "HAVING", "BEST", "ORDER", "LIMIT"]
    present = [
        (clause, span) for clause in clauses if (part := node.args.get(clause.lower())) and (span := span_of(part))
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
    if isinstance(node, BestClause):
        _check_columns_only(node)


def _check_subquery(node: exp.Expr) -> None:
    if isinstance(node.this, exp.Table | StreamFunction) and not node.this.args.get("joins"):
        raise _unsupported_error(node, "a relation in parentheses", "Leave the parentheses out.")


def _check_join(node: exp.Expr) -> None:
    words = {node.args.get(key) for key in ("method", "side", "kind")} - {None, ""}
    if not words <= {"ASOF", "NATURAL", "LEFT", "RIGHT", "FULL", "INNER", "OUTER", "CROSS"}:
        raise _unsupported_error(node, f"{' '.join(sorted(str(w) for w in words))} JOIN")
    if "NATURAL" in words:
        raise _unsupported_error(node, "NATURAL JOIN", "Name the columns with USING.")
    if "ASOF" in words and words & {"RIGHT", "FULL", "CROSS"}:
        raise _unsupported_error(node, "this ASOF JOIN", "Use ASOF JOIN or ASOF LEFT JOIN.")
    if "OUTER" in words and not words & {"LEFT", "RIGHT", "FULL"}:
        raise error("E010", "expected LEFT, RIGHT or FULL before OUTER", span_of(node))


def _check_ordered(node: exp.Expr) -> None:
    if bool(node.args.get("nulls_first")) != bool(node.args.get("desc")):
        raise _unsupported_error(
            node, "NULLS FIRST or LAST", "NULL comes last in ascending order, and first with DESC."
        )


def _check_distinct(node: exp.Expr) -> None:
    if isinstance(node.parent, exp.Select):
        return
    if not isinstance(node.parent, exp.Count):
        raise _unsupported_error(node, "DISTINCT outside COUNT", "Aggregate over a view that uses SELECT DISTINCT.")
    if len(node.expressions) != 1:
        raise _unsupported_error(
            node, "COUNT(DISTINCT) of several columns", "Count the rows of a view that uses SELECT DISTINCT."
        )


def _check_table(node: exp.Expr) -> None:
    if not isinstance(node.this, exp.Identifier):
        name = node.this.name if isinstance(node.this, exp.Anonymous) else "this relation"
        hint = "The functions allowed in FROM are TUMBLE, HOP, LAST and MERGE."
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


def _check_is(node: exp.Expr) -> None:
    if not isinstance(node.expression, exp.Null | exp.Boolean):
        raise error("E010", "expected NULL, TRUE, FALSE or DISTINCT FROM after IS", span_of(node))


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


def _check_stream_function(node: exp.Expr) -> None:
    if isinstance(node, StreamFunction) and node.kind == "merge" and len(node.relations) < 2:
        raise error("E032", "MERGE takes at least two relations", span_of(node))


def _check_window(node: exp.Expr) -> None:
    if not isinstance(node.this, exp.AggFunc):
        raise _unsupported_error(
            node, "this function OVER a window", "OVER takes SUM, COUNT, MIN, MAX, AVG, LATEST or EARLIEST."
        )


def _check_window_spec(node: exp.Expr) -> None:
    args = node.args
    if args.get("kind") != "RANGE" or args.get("start_side") != "PRECEDING" or args.get("end"):
        raise _unsupported_error(node, "this frame", "Use RANGE INTERVAL … PRECEDING or RANGE UNBOUNDED PRECEDING.")


_NODE_CHECKS: dict[type[exp.Expr], Callable[[exp.Expr], None]] = {
    exp.Select: _check_select,
    exp.Group: _check_group,
    exp.Union: _check_union,
    exp.Limit: _check_limit,
    exp.Subquery: _check_subquery,
    exp.Join: _check_join,
    exp.Ordered: _check_ordered,
    exp.Distinct: _check_distinct,
    exp.Table: _check_table,
    exp.Alias: _check_alias,
    exp.Star: _check_star,
    exp.Is: _check_is,
    exp.Anonymous: _check_call,
    exp.Window: _check_window,
    exp.WindowSpec: _check_window_spec,
    BestClause: _check_limit,
    SilenceCall: _check_columns_only,
    NestedGroup: _check_columns_only,
    StreamFunction: _check_stream_function,
}
