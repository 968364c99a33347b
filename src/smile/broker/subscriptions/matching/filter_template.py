"""The normal form of a filter: its template, which filters that differ only in constants share, and its parameters.

A filter is a conjunction. Its parts, all over the columns of an event:
- `predicate` has no parameters.
- `memberships`: the value of an expression is one of the values of a parameter, `a = 1` or `a IN (1, 2)`.
- `ranges`: an expression is compared with a parameter by <, <=, > or >=.
- `tests` look up rows of a table.
- `residual` is a predicate with parameters, or with the results of tests.
Parameter n is the column `parameter_column(n)` in expressions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from smile.algebra import mmpl, trees
from smile.algebra.folding import fold_expression
from smile.algebra.functions.logic import COMPARISONS
from smile.algebra.printer import print_expression
from smile.algebra.types import BOOL, DataType
from smile.broker.subscriptions.matching.row_expressions import RowValue
from smile.broker.views.condition import row_values
from smile.columns.values import from_python
from smile.errors import SmileError, error
from smile.source import Span

FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ROW: Final = "\0row "
_PARAMETER: Final = "\0parameter "
_RESULT: Final = "\0test "
"""Columns that are not columns of the event. No name in a program has this character."""
ALTERNATIVES_MAX: Final = 1_000
"""Combinations of the values in the lists of one filter."""

Parameter = RowValue | frozenset[RowValue]
"""The value of a parameter; of a membership, its values."""


@dataclass(frozen=True)
class TableTest:
    """Whether a table has a row, as of the event's tick. `semi`: the event matches if it does, `anti`: if it does not;
    `match`: the result is the column `result`, for the residual predicate.

    A row is looked for that satisfies `row_predicate`, whose `row_keys` equal the event's `event_keys`, whose
    `parameter_keys` are among the values of the parameters `parameters`, and for which `when` is true. `compared` are
    the operands of IN, of the event and of the row, where NULL makes the result unknown. Columns of the row are named
    by `row_column`."""

    kind: mmpl.JoinKind
    table: str
    event_keys: tuple[mmpl.Expr, ...]
    row_keys: tuple[mmpl.Expr, ...]
    parameter_keys: tuple[mmpl.Expr, ...]
    parameters: tuple[int, ...]
    compared: tuple[mmpl.Expr, mmpl.Expr] | None
    row_predicate: mmpl.Expr | None
    when: mmpl.Expr | None
    result: str | None

    @property
    def uses_parameters(self) -> bool:
        return bool(self.parameters) or (self.when is not None and bool(parameters_in(self.when)))


@dataclass(frozen=True)
class FilterTemplate:
    predicate: mmpl.Expr | None
    memberships: tuple[tuple[mmpl.Expr, int], ...]
    ranges: tuple[tuple[mmpl.Expr, str, int], ...]
    tests: tuple[TableTest, ...]
    residual: mmpl.Expr | None
    parameter_types: tuple[DataType, ...]


def row_column(column: str) -> str:
    """The name of a column of a table's row in the expressions of a test."""
    return f"{_ROW}{column}"


def parameter_column(number: int) -> str:
    return f"{_PARAMETER}{number}"


def parameters_in(expr: mmpl.Expr) -> list[int]:
    return sorted(int(n.removeprefix(_PARAMETER)) for n in trees.columns_in(expr) if n.startswith(_PARAMETER))


def normalize_filter(
    rel: mmpl.Rel,
    filtered: str,
    types: Mapping[str, DataType],
    tables: Mapping[str, tuple[str, Mapping[str, DataType]]],
) -> tuple[FilterTemplate, tuple[Parameter, ...]]:
    """The template and the parameters of a translated filter, which reads the relation `filtered`, with columns of
    these types. `tables` has the name and the columns of the table behind each relation that tests read."""
    return _Normalization(filtered, types, tables).normalize(rel)


Substitution = Mapping[str, mmpl.Expr]


class _Normalization:
    def __init__(
        self,
        filtered: str,
        types: Mapping[str, DataType],
        tables: Mapping[str, tuple[str, Mapping[str, DataType]]],
    ) -> None:
        self._filtered, self._tables = filtered, tables
        self._types = dict(types)
        self._parameters: list[Parameter] = []
        self._parameter_types: list[DataType] = []

    def normalize(self, rel: mmpl.Rel) -> tuple[FilterTemplate, tuple[Parameter, ...]]:
        columns: dict[str, mmpl.Expr] = {name: mmpl.ColumnRef(name) for name in self._types}
        predicates, joins = list[mmpl.Expr](), list[tuple[mmpl.Join, Substitution]]()
        for operator in self._chain(rel, self._filtered):
            match operator:
                case mmpl.Extend():
                    columns |= {name: _substitute(expr, columns) for name, expr in operator.assignments}
                case mmpl.Restrict():
                    predicates += _conjuncts(_substitute(operator.predicate, columns))
                case mmpl.Join():
                    joins.append((operator, dict(columns)))
                    if operator.match_column is not None:
                        result = _result_column(len(joins))
                        columns[operator.match_column] = mmpl.ColumnRef(result)
                        self._types[result] = BOOL
                case mmpl.Project():
                    pass
                case _:
                    raise _unsupported(operator.span)
        return self._template(predicates, joins)

    def _chain(self, rel: mmpl.Rel, base: str) -> list[mmpl.Rel]:
        """The operators over the relation `base`, the first one applied to it first."""
        operators = list[mmpl.Rel]()
        while not (isinstance(rel, mmpl.RelationRef) and rel.name == base):
            operators.append(rel)
            is_test = isinstance(rel, mmpl.Join) and rel.kind in ("semi", "anti", "match")
            inputs = trees.inputs_of(rel)
            if not (is_test or len(inputs) == 1):
                raise _unsupported(rel.span)
            rel = inputs[0]
        return operators[::-1]

    def _template(
        self, predicates: Sequence[mmpl.Expr], joins: Sequence[tuple[mmpl.Join, Substitution]]
    ) -> tuple[FilterTemplate, tuple[Parameter, ...]]:
        free, residual = list[mmpl.Expr](), list[mmpl.Expr]()
        memberships, ranges = list[tuple[mmpl.Expr, int]](), list[tuple[mmpl.Expr, str, int]]()
        for predicate in sorted(predicates, key=_shape):
            if not _has_comparison(predicate) and not _uses_results(predicate):
                free.append(predicate)
            elif (membership := _membership(predicate)) is not None:
                memberships.append((membership[0], self._add_set(*membership)))
            elif (comparison := _range(predicate)) is not None:
                expr, operator, constant = comparison
                ranges.append((expr, operator, self._add_constant(constant)))
            else:
                residual.append(self._parameterize(predicate))
        self._check_alternatives(number for _, number in memberships)
        tests = [
            self._test(join, columns, _result_column(n) if join.kind == "match" else None)
            for n, (join, columns) in enumerate(joins, 1)
        ]
        template = FilterTemplate(
            trees.conjunction(free) if free else None,
            tuple(memberships),
            tuple(ranges),
            tuple(tests),
            trees.conjunction(residual) if residual else None,
            tuple(self._parameter_types),
        )
        return template, tuple(self._parameters)

    # ── tests of tables ─────────────────────────────────────────────────────────────────────────────────────────────

    def _test(self, join: mmpl.Join, event_columns: Substitution, result: str | None) -> TableTest:
        base = next((node for node in trees.walk(join.right) if isinstance(node, mmpl.RelationRef)), None)
        if base is None or base.name not in self._tables:
            raise _unsupported(join.span)
        table, types = self._tables[base.name]
        row_columns: dict[str, mmpl.Expr] = {name: mmpl.ColumnRef(row_column(name)) for name in types}
        conditions = list[mmpl.Expr]()
        for operator in self._chain(join.right, base.name):
            match operator:
                case mmpl.Extend():
                    row_columns |= {name: _substitute(expr, row_columns) for name, expr in operator.assignments}
                case mmpl.Rename():
                    names = dict(operator.pairs)
                    row_columns = {names.get(name, name): expr for name, expr in row_columns.items()}
                case mmpl.Restrict():
                    conditions += _conjuncts(_substitute(operator.predicate, row_columns))
                case mmpl.Project() | mmpl.Distinct():
                    pass
                case _:
                    raise _unsupported(operator.span or join.span)
        if join.when is not None:
            conditions += _conjuncts(_substitute(join.when, {**event_columns, **row_columns}))
        pairs = [(event_columns[a], row_columns[b]) for a, b in join.on]
        compared = None
        if join.null_aware:
            (compared,) = pairs
            pairs = []
        return self._split_conditions(join.kind, table, conditions, pairs, compared, result)

    def _split_conditions(
        self,
        kind: mmpl.JoinKind,
        table: str,
        conditions: Sequence[mmpl.Expr],
        pairs: list[tuple[mmpl.Expr, mmpl.Expr]],
        compared: tuple[mmpl.Expr, mmpl.Expr] | None,
        result: str | None,
    ) -> TableTest:
        row_only, when = list[mmpl.Expr](), list[mmpl.Expr]()
        parameter_keys = list[tuple[mmpl.Expr, int]]()
        for condition in sorted(conditions, key=_shape):
            pair = _equal_pair(condition)
            is_row_only = all(map(_is_row_column, trees.columns_in(condition)))
            membership = _membership(condition)
            if pair is not None:
                pairs.append(pair)
            elif membership is not None and is_row_only:
                parameter_keys.append((membership[0], self._add_set(*membership)))
            elif is_row_only and not _has_comparison(condition):
                row_only.append(condition)
            else:
                when.append(self._parameterize(condition))
        self._check_alternatives(number for _, number in parameter_keys)
        pairs = sorted(dict.fromkeys(pairs), key=lambda pair: (_shape(pair[0]), _shape(pair[1])))
        return TableTest(
            kind,
            table,
            tuple(event for event, _ in pairs),
            tuple(row for _, row in pairs),
            tuple(expr for expr, _ in parameter_keys),
            tuple(number for _, number in parameter_keys),
            compared,
            trees.conjunction(row_only) if row_only else None,
            trees.conjunction(when) if when else None,
            result,
        )

    # ── parameters ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _add(self, value: Parameter, data: DataType) -> int:
        self._parameters.append(value)
        self._parameter_types.append(data)
        return len(self._parameters) - 1

    def _add_constant(self, constant: mmpl.Constant) -> int:
        return self._add(_row_value(constant), constant.type)

    def _add_set(self, expr: mmpl.Expr, constants: Sequence[mmpl.Constant]) -> int:
        """NULL equals nothing, so it is no value of a membership."""
        values = frozenset(_row_value(constant) for constant in constants if constant.value is not None)
        return self._add(values, constants[0].type)

    def _check_alternatives(self, numbers: Iterable[int]) -> None:
        """Every combination of the values of lists is looked up."""
        count = prod(len(self._parameters[number]) for number in numbers)
        if count > ALTERNATIVES_MAX:
            message = f"the lists of the filter have {count:,} combinations, the limit is {ALTERNATIVES_MAX:,}"
            raise error("E145", message, hint="Put the values into a table, and write IN (SELECT …).")

    def _parameterize(self, predicate: mmpl.Expr) -> mmpl.Expr:
        """The predicate with parameters in place of the constants of its comparisons."""

        def change(expr: mmpl.Expr) -> mmpl.Expr:
            if not (isinstance(expr, mmpl.Call) and expr.function in COMPARISONS):
                return expr
            args = [
                mmpl.ColumnRef(parameter_column(self._add_constant(a))) if isinstance(a, mmpl.Constant) else a
                for a in expr.args
            ]
            return replace(expr, args=tuple(args))

        return trees.rebuild_expr(predicate, change)


# ── predicates ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _substitute(expr: mmpl.Expr, columns: Substitution) -> mmpl.Expr:
    return trees.rebuild_expr(expr, lambda e: columns.get(e.name, e) if isinstance(e, mmpl.ColumnRef) else e)


def _conjuncts(predicate: mmpl.Expr) -> list[mmpl.Expr]:
    """Constants are folded, and are the right operands of comparisons."""
    folded = trees.rebuild_expr(fold_expression(predicate), _with_constant_right)
    return [e for e in trees.conjuncts(folded) if e != mmpl.Constant(True, BOOL)]


def _with_constant_right(expr: mmpl.Expr) -> mmpl.Expr:
    if not (isinstance(expr, mmpl.Call) and expr.function in COMPARISONS and isinstance(expr.args[0], mmpl.Constant)):
        return expr
    return replace(expr, function=FLIPPED.get(expr.function, expr.function), args=expr.args[::-1])


def _is_value(expr: mmpl.Expr) -> bool:
    return isinstance(expr, mmpl.Constant)


def _result_column(number: int) -> str:
    """The column with the result of a test, in predicates."""
    return f"{_RESULT}{number}"


def _uses_results(expr: mmpl.Expr) -> bool:
    return any(name.startswith(_RESULT) for name in trees.columns_in(expr))


def _is_row_column(name: str) -> bool:
    return name.startswith(_ROW)


def _has_comparison(predicate: mmpl.Expr) -> bool:
    """Whether an operand of a comparison in it is a constant."""
    if isinstance(predicate, mmpl.Call) and predicate.function in COMPARISONS and any(map(_is_value, predicate.args)):
        return True
    return any(map(_has_comparison, trees.operands_of(predicate)))


def _shape(predicate: mmpl.Expr) -> str:
    """Text by which predicates are ordered. It does not depend on constants in comparisons."""

    def change(expr: mmpl.Expr) -> mmpl.Expr:
        if isinstance(expr, mmpl.Call) and expr.function in COMPARISONS:
            return replace(expr, args=tuple(mmpl.ColumnRef(_PARAMETER) if _is_value(a) else a for a in expr.args))
        return expr

    membership = _membership(predicate)
    if membership is not None:
        return f"{print_expression(membership[0])} IN $"
    return print_expression(trees.rebuild_expr(predicate, change))


def _comparison(predicate: mmpl.Expr) -> tuple[mmpl.Expr, str, mmpl.Constant] | None:
    """A comparison of an expression with a constant, which is its right operand."""
    if not (isinstance(predicate, mmpl.Call) and predicate.function in COMPARISONS):
        return None
    a, b = predicate.args
    return (a, predicate.function, b) if isinstance(b, mmpl.Constant) else None


def _membership(predicate: mmpl.Expr) -> tuple[mmpl.Expr, list[mmpl.Constant]] | None:
    """`a = 1`, or `a = 1 OR a = 2`."""
    is_or = isinstance(predicate, mmpl.Call) and predicate.function == "or"
    comparisons = [_comparison(part) for part in (_disjuncts(predicate) if is_or else [predicate])]
    constants = list[mmpl.Constant]()
    for comparison in comparisons:
        if comparison is None or comparison[1] != "=" or comparison[0] != comparisons[0][0]:  # type: ignore[index]
            return None
        constants.append(comparison[2])
    expr = comparisons[0][0]  # type: ignore[index]
    return None if _uses_results(expr) else (expr, constants)


def _disjuncts(predicate: mmpl.Expr) -> list[mmpl.Expr]:
    operands, stack = list[mmpl.Expr](), [predicate]
    while stack:
        node = stack.pop()
        if isinstance(node, mmpl.Call) and node.function == "or":
            stack.extend(reversed(node.args))
        else:
            operands.append(node)
    return operands


def _range(predicate: mmpl.Expr) -> tuple[mmpl.Expr, str, mmpl.Constant] | None:
    comparison = _comparison(predicate)
    if comparison is None or comparison[1] not in FLIPPED or comparison[2].value is None:
        return None
    return None if _uses_results(comparison[0]) else comparison


def _equal_pair(condition: mmpl.Expr) -> tuple[mmpl.Expr, mmpl.Expr] | None:
    """An expression of the event and one of the row, if the condition equates them."""
    if not (isinstance(condition, mmpl.Call) and condition.function == "="):
        return None
    for event, row in (condition.args, condition.args[::-1]):
        event_columns, row_columns = trees.columns_in(event), trees.columns_in(row)
        is_pair = bool(event_columns and row_columns) and all(map(_is_row_column, row_columns))
        if is_pair and not any(map(_is_row_column, event_columns)):
            return event, row
    return None


def _row_value(constant: mmpl.Constant) -> RowValue:
    ((value,),) = row_values([from_python([constant.value], constant.type)])
    return value


def _unsupported(span: Span | None) -> SmileError:
    hint = "A subquery has one table, with WHERE. For joins, aggregates or SILENCE, define a view and subscribe to it."
    return error("E145", "this cannot be used in a filter", span, hint)
