"""Prints statements in a canonical form. Parsing the text gives equal statements, which print as the same text."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.errors import ErrorLevel
from sqlglot.generator import Generator

from smile.lang.dialect import SmileSQL
from smile.lang.nodes import (
    DERIVED_AGGREGATES,
    PERCENTILES,
    ArrayAggregate,
    BestClause,
    Earliest,
    Latest,
    NestedGroup,
    SilenceCall,
    StreamFunction,
    StringAggregate,
)
from smile.lang.statements import (
    AdvertiseProducer,
    ColumnDecl,
    CreateDomain,
    CreateRepublisher,
    CreateStream,
    CreateTable,
    CreateView,
    ImportRelation,
    Name,
    Statement,
    Subscribe,
)
from smile.recursion import continue_in_threads


def print_statements(statements: Iterable[Statement]) -> str:
    """One statement per line."""
    return "".join(f"{print_statement(s)};\n" for s in statements)


def print_statement(statement: Statement) -> str:
    match statement:
        case CreateDomain(name=name, base=base, check=check, not_null=not_null):
            checks = () if check is None else (check,)
            return f"CREATE DOMAIN {_name(name)} AS {base}{_constraints(not_null, checks)}"
        case CreateStream():
            return _stream(statement)
        case CreateTable():
            return _table(statement)
        case CreateView(name=name, columns=columns, query=query):
            column_list = f" ({', '.join(map(_name, columns))})" if columns else ""
            return f"CREATE VIEW {_name(name)}{column_list} AS {print_expression(query)}"
        case ImportRelation(relation=relation, condition=condition, alias=alias):
            brokers = ", ".join(map(_name, (statement.broker, *statement.other_brokers)))
            return f"IMPORT {_name(relation)} FROM {brokers}{_where(condition)}" + (
                f" AS {_name(alias)}" if alias else ""
            )
        case AdvertiseProducer(relation=relation, alias=alias):
            ending = "" if alias is None else f" AS {_name(alias)}"
            declared = "" if statement.stream is None else f" {_global_columns(statement.stream)}"
            return f"ADVERTISE {_name(relation)}{declared}{_where(statement.condition)}{ending}"
        case CreateRepublisher(name=name, relation=relation):
            selection = f"SELECT * FROM {_name(relation)}{_where(statement.condition)}"
            kept = statement.history
            history = "" if kept is None else f" WITH (HISTORY = {print_expression(kept)})"
            return f"CREATE REPUBLISHER {_name(name)} AS {selection}{history}"
        case Subscribe(names=names):
            return f"SUBSCRIBE {', '.join(map(_name, names))}"


def _where(condition: exp.Expr | None) -> str:
    return "" if condition is None else f" WHERE {print_expression(condition)}"


def print_expression(node: exp.Expr) -> str:
    """Prints a query, a condition or any part of one."""
    return _SmileGenerator(dialect=SmileSQL, comments=False, unsupported_level=ErrorLevel.IGNORE).generate(node)


def _global_columns(stream: CreateStream) -> str:
    assert stream.channel is not None
    columns = [f"{_name(c.name)}: {_column(c, '').removeprefix(_name(c.name)).lstrip()}" for c in stream.columns]
    keys = ", ".join([f"{_name(stream.tick.name)}: {stream.tick.type_name}", *columns[: len(stream.channel)]])
    measurements = ", ".join(columns[len(stream.channel) :])
    arrow = f" -> {measurements}" if measurements else ""
    return f"({keys}{arrow})"


def _stream(stream: CreateStream) -> str:
    if stream.channel is not None:
        return f"CREATE GLOBAL STREAM {_name(stream.name)} {_global_columns(stream)}"
    parts = [f"{_column(stream.tick, ' TIME KEY')}"]
    parts += [_column(column, "") for column in stream.columns]
    parts += [f"UNIQUE ({', '.join(map(_name, columns))})" for columns in stream.unique]
    parts += [f"CHECK ({print_expression(check)})" for check in stream.checks]
    options = ["TICKS = PUBLISHER"] * stream.publisher_timed + ["ORIGINS = MANY"] * (
        stream.many_origins_span is not None
    )
    options += [f"HOME = {_name(stream.home)}"] if stream.home is not None else []
    options += ["CHANGES = TABLE"] * stream.is_table
    with_options = f" WITH ({', '.join(options)})" if options else ""
    return f"CREATE STREAM {_name(stream.name)} ({', '.join(parts)}){with_options}"


def _table(table: CreateTable) -> str:
    parts = [_column(column, "") for column in table.columns]
    parts += [f"PRIMARY KEY ({', '.join(map(_name, table.key))})"]
    parts += [f"CHECK ({print_expression(check)})" for check in table.checks]
    ticks = " WITH (TICKS = PUBLISHER)" * table.publisher_timed + " STATIC" * table.is_static
    rows = f" AS VALUES {', '.join(map(print_expression, table.rows))}" if table.rows else ""
    if table.file is not None:
        quoted = table.file.path.replace("'", "''")
        rows = f" AS FILE '{quoted}'"
    return f"CREATE TABLE {_name(table.name)} ({', '.join(parts)}){ticks}{rows}"


def _column(column: ColumnDecl, key: str) -> str:
    unique = " UNIQUE" if column.unique else ""
    return f"{_name(column.name)} {column.type_name}{key}{unique}{_constraints(column.not_null, column.checks)}"


def _constraints(not_null: bool, checks: Iterable[exp.Expr]) -> str:
    return " NOT NULL" * not_null + "".join(f" CHECK ({print_expression(check)})" for check in checks)


def _name(name: Name) -> str:
    return '"' + name.text.replace('"', '""') + '"' if name.quoted else name.text


def _derived_aggregate_printer(name: str) -> Callable[..., str]:
    return lambda self, node: f"{name}({self._list(node.iter_expressions())})"


def _percentile_printer(name: str) -> Callable[..., str]:
    def print_percentile(self: Any, node: exp.Expr) -> str:
        order = f"{self.sql(node, 'this')}{' DESC' if node.args.get('descending') else ''}"
        return f"{name}({self.sql(node, 'fraction')}) WITHIN GROUP (ORDER BY {order})"

    return print_percentile


class _SmileGenerator(Generator):
    AFTER_HAVING_MODIFIER_TRANSFORMS: ClassVar[dict[str, Callable[..., str]]] = {
        "qualify": lambda self, select: self.sql(select, "qualify"),
        "best": lambda self, select: self.seg(self.sql(select, "best")) if select.args.get("best") else "",
    }
    EXPRESSION_WITHOUT_NESTED_CTES: ClassVar[set[type[exp.Expr]]] = set()
    TRANSFORMS: ClassVar[dict[type[exp.Expr], Callable[..., str]]] = {
        **Generator.TRANSFORMS,
        BestClause: lambda self, node: self.best_sql(node),
        SilenceCall: lambda self, node: self.silence_sql(node),
        Latest: lambda self, node: f"LATEST({self.sql(node, 'this')})",
        Earliest: lambda self, node: f"EARLIEST({self.sql(node, 'this')})",
        StringAggregate: lambda self, node: self.string_aggregate_sql(node),
        ArrayAggregate: lambda self, node: self.array_aggregate_sql(node),
        exp.Array: lambda self, node: f"ARRAY[{self._list(node.expressions)}]",
        exp.Bracket: lambda self, node: f"{self.sql(node, 'this')}[{self._list(node.expressions)}]",
        exp.Unnest: lambda self, node: self.unnest_sql(node),
        NestedGroup: lambda self, node: f"GROUP({self._list(node.expressions)})",
        exp.CurrentTimestamp: lambda *_: "NOW()",
        StreamFunction: lambda self, node: self.streamfunction_sql(node),
        **{node: _derived_aggregate_printer(name) for name, node in DERIVED_AGGREGATES.items()},
        **{node: _percentile_printer(name) for name, node in PERCENTILES.items()},
    }

    sql = continue_in_threads(Generator.sql)

    def best_sql(self, best: BestClause) -> str:
        per = f" PER {self._list(best.per)}" if best.per else ""
        return f"BEST {self.sql(best.k)} BY {self._list(best.by)}{per}"

    def string_aggregate_sql(self, node: StringAggregate) -> str:
        distinct = "DISTINCT " if node.is_distinct else ""
        separator = self.sql(node, "separator")
        return f"STRING_AGG({distinct}{self.sql(node, 'this')}, {separator}{self._joining_order(node)})"

    def array_aggregate_sql(self, node: ArrayAggregate) -> str:
        distinct = "DISTINCT " if node.is_distinct else ""
        condition = "" if node.filter is None else f" FILTER(WHERE {self.sql(node.filter)})"
        return f"ARRAY_AGG({distinct}{self.sql(node, 'this')}{self._joining_order(node)}){condition}"

    def _joining_order(self, node: StringAggregate | ArrayAggregate) -> str:
        if node.descending:
            return f" ORDER BY {self.sql(node, 'this')} DESC"
        return f" ORDER BY {self._list(node.order)}" if node.order else ""

    def unnest_sql(self, node: exp.Unnest) -> str:
        ordinality = " WITH ORDINALITY" if node.args.get("offset") else ""
        alias = node.args.get("alias")
        return f"UNNEST({self._list(node.expressions)}){ordinality}" + (f" AS {self.sql(alias)}" if alias else "")

    def silence_sql(self, silence: SilenceCall) -> str:
        per = f" PER {self._list(silence.per)}" if silence.per else ""
        return f"SILENCE({self.sql(silence, 'this')}{per})"

    def streamfunction_sql(self, function: StreamFunction) -> str:
        per = self._list(function.per)
        per = f" PARTITION BY {f'({per})' if len(function.per) > 1 else per}" if per else ""
        columns, zones = ([part] if part is not None else [] for part in (function.column, function.zone))
        rest = self._list([*columns, *function.intervals, *zones])
        alias = function.args.get("alias")
        relations = f"{self._list(function.relations)}{per}" + (f", {rest}" if rest else "")
        return f"{function.kind.upper()}({relations})" + (f" AS {self.sql(alias)}" if alias else "")

    def interval_sql(self, interval: exp.Interval) -> str:
        unit = interval.args.get("unit")
        return f"INTERVAL {self.sql(interval, 'this')}" + (f" {self.sql(unit)}" if unit else "")

    def hexstring_sql(self, literal: exp.HexString, binary_function_repr: str | None = None) -> str:
        return f"x'{literal.name.lower()}'"

    def windowspec_sql(self, spec: exp.WindowSpec) -> str:
        if spec.args.get("kind") == "ROWS":
            start, end = (self._frame_end(spec, end) for end in ("start", "end"))
            return f"ROWS BETWEEN {start} AND {end}"
        return f"RANGE {self.sql(spec, 'start')} PRECEDING"

    def _frame_end(self, spec: exp.WindowSpec, end: str) -> str:
        if spec.args.get(end) in (None, "CURRENT ROW"):
            return "CURRENT ROW"
        return f"{self.sql(spec, end)} {spec.args[f'{end}_side']}"

    def anonymous_sql(self, call: exp.Anonymous) -> str:
        return f"{call.name.upper()}({self._list(call.expressions)})"

    def cast_sql(self, cast: exp.Cast, safe_prefix: str | None = None) -> str:
        inner, to = self.sql(cast, "this"), self.sql(cast, "to")
        return f"{inner}::{to}" if isinstance(cast.this, exp.Cast) else f"CAST({inner} AS {to})"

    def datatype_sql(self, type_: exp.DataType) -> str:
        return str(type_.args["kind"])

    def not_sql(self, negation: exp.Not) -> str:
        """Prints `a NOT IN (…)` instead of `NOT a IN (…)`: it binds tighter and can be an operand without parentheses.

        `a IS NOT TRUE` is an `exp.Not` too, while `a IS NOT NULL` is an `exp.Is`.
        """
        inner = negation.this
        if isinstance(inner, exp.In | exp.Between):
            left = self.sql(inner, "this")
            return f"{left} NOT{self.sql(inner)[len(left) :]}"
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Boolean):
            return f"{self.sql(inner, 'this')} IS NOT {self.sql(inner, 'expression')}"
        return f"NOT {self.sql(inner)}"

    def literal_sql(self, literal: exp.Literal) -> str:
        return "'" + literal.name.replace("'", "''") + "'" if literal.is_string else literal.name

    def _list(self, nodes: Iterable[Any]) -> str:
        return ", ".join(self.sql(node) for node in nodes)
