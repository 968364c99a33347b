"""Tables that a program imports: the stream of their changes is imported, and their rows follow from it, as at home. A
static table is copied from its definition: nothing of it is imported while brokers run.
"""

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from smile.algebra import mmpl, trees
from smile.algebra.functions.catalogue import evaluate_expr
from smile.algebra.types import Value
from smile.analysis.export_description import rows_name
from smile.analysis.headings import Headings
from smile.errors import error
from smile.lang import span_of
from smile.translate.filters import translate_condition
from smile.translate.pipeline import KeyedTable


def has_table(import_: mmpl.ImportDef) -> bool:
    return _rows(import_) is not None


def _rows(import_: mmpl.ImportDef) -> mmpl.Rel | None:
    assert import_.definition is not None
    name = rows_name(import_.relation)
    return next((view.body for view in import_.definition.views if view.name == name), None)


def imported_table(import_: mmpl.ImportDef, condition: exp.Expr | None) -> tuple[mmpl.ImportDef, KeyedTable]:
    """The import of the stream of a table with the condition, and the table. Its `stream` is None if it is static."""
    assert import_.definition is not None
    rows = _rows(import_)
    assert rows is not None
    stream = import_.passed_on_stream
    headings = Headings()
    if stream is None:
        columns = dict(headings.heading_of(rows).columns)
        values = _selected(rows, [] if condition is None else translate_condition(condition, columns))
        values = replace(values, span=import_.span)
        return import_, KeyedTable(import_.name, values.key, tuple(columns), values, values, None)
    newest = next(rel for rel in trees.walk(rows) if isinstance(rel, mmpl.Summarize))
    columns = {name: data for name, data in stream.columns if name != mmpl.CHANGE_COLUMN}
    predicates: list[mmpl.Expr] = []
    if condition is not None:
        predicates = translate_condition(condition, columns)
        _check_key_condition(import_, newest.per, predicates, condition)
        import_ = replace(import_, condition=trees.conjunction(predicates))

    def adapt(rel: mmpl.Rel) -> mmpl.Rel:
        if isinstance(rel, mmpl.RelationRef):
            return replace(rel, name=import_.name)
        return _selected(rel, predicates) if isinstance(rel, mmpl.Values) else rel

    contents, changes = trees.rebuild_relation(rows, adapt), trees.rebuild_relation(newest.input, adapt)
    return import_, KeyedTable(import_.name, newest.per, tuple(columns), contents, changes, import_.passed_on_stream)


def _check_key_condition(
    import_: mmpl.ImportDef, key: tuple[str, ...], predicates: list[mmpl.Expr], condition: exp.Expr
) -> None:
    """A row that no longer satisfies a condition on other columns would stay: its last change would not be sent."""
    for name in sorted({c for predicate in predicates for c in trees.columns_in(predicate)} - {*key}):
        hint = f"The columns of its primary key never change: {', '.join(key)}. Restrict the others in a view."
        message = f"{import_.relation}.{name} may change, so it cannot decide which rows are imported"
        raise error("E048", message, span_of(condition) or import_.span, hint)


def _selected(rel: mmpl.Rel, predicates: list[mmpl.Expr]) -> mmpl.Values:
    """The rows of the definition that satisfy the condition."""
    assert isinstance(rel, mmpl.Values)
    types = dict(rel.columns)

    def is_selected(row: tuple[Value, ...]) -> bool:
        values: Mapping[str, Value] = dict(zip(types, row, strict=True))
        return all(evaluate_expr(predicate, values, types) is True for predicate in predicates)

    return replace(rel, rows=tuple(row for row in rel.rows if is_selected(row)))
