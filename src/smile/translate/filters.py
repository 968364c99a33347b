"""Translates the filter of a subscription, a predicate over the columns of a relation, which may consult tables; and
conditions on one event or row alone."""

from collections.abc import Iterable, Mapping

from sqlglot import exp

from smile.algebra import mmpl, trees
from smile.algebra.heading import Heading
from smile.algebra.types import DataType
from smile.analysis.check import check_operator_count
from smile.analysis.headings import Headings
from smile.errors import error
from smile.lang import span_of
from smile.source import Span
from smile.translate.expressions import ExpressionTranslator
from smile.translate.pipeline import Catalog
from smile.translate.queries import translate_query
from smile.translate.scope import FromItem, NameTable, Scope, is_quoted

FILTERED = "event"
"""The name of the filtered relation in the translation, whatever it is called in the program."""


def table_name(name: str) -> str:
    """The name of a table in the translation. The filtered stream may be that of the table's changes."""
    return f"table {name}"


def translate_filter(
    condition: exp.Expr, relation: str, heading: Heading, tables: Mapping[str, Heading], others: Iterable[str]
) -> mmpl.Rel:
    """The rows of the relation FILTERED for which the condition is true. In the condition it is called `relation`;
    subqueries read `tables`, and cannot read the `others`."""
    catalog = Catalog(NameTable(), Headings({FILTERED: heading}), NameTable())
    catalog.relations.add(FILTERED, mmpl.RelationRef(FILTERED), quoted=True)
    known, refused = NameTable(dict.fromkeys(tables)), NameTable(dict.fromkeys(others))
    for name, table in tables.items():
        catalog.relations.add(name, mmpl.RelationRef(table_name(name)))
        catalog.headings.relations[table_name(name)] = table
    for node in condition.find_all(exp.Table):
        written = node.name, is_quoted(node)
        if known.find(*written) is None and (other := refused.find(*written)) is not None:
            raise _no_table_error(other, span_of(node))
    source = exp.Table(
        this=exp.Identifier(this=FILTERED, quoted=True),
        alias=exp.TableAlias(this=exp.Identifier(this=relation, quoted=True)),
    )
    query = exp.Select(expressions=[exp.Star()], from_=exp.From(this=source), where=exp.Where(this=condition))
    rel = translate_query(query, catalog)
    check_operator_count(rel, span_of(condition))
    return rel


def translate_condition(node: exp.Expr, columns: Mapping[str, DataType]) -> list[mmpl.Expr]:
    """The conjuncts of a condition on one event or row: of a CHECK over the columns of a stream or the value of a
    domain, of an import's WHERE, or of an advertisement."""
    if node.find(exp.Query) is not None:
        message = "a condition on one event or row cannot have a subquery"
        raise error("E047", message, span_of(node))
    scope = Scope([FromItem("", NameTable({c: c for c in columns}))])
    return trees.conjuncts(ExpressionTranslator(scope, lambda name, _: columns[name]).translate_predicate(node))


def _no_table_error(name: str, span: Span | None) -> Exception:
    hint = f"A filter reads streams of a table's changes: CREATE STREAM {name} (…) WITH (CHANGES = TABLE)."
    return error("E145", f"{name} is not a table", span, hint)
