"""UNNEST in FROM: a row for each element of an array of the rows before it."""

from sqlglot import exp

from smile.algebra import mmpl
from smile.errors import error
from smile.lang import span_of
from smile.translate.from_clause import apply_column_aliases
from smile.translate.pipeline import QueryPipeline
from smile.translate.scope import FromItem, NameTable, free_name

_HINT = "Write FROM a, UNNEST(a.tags) AS u (tag), or LEFT JOIN UNNEST(a.tags) AS u (tag) ON TRUE."


def add_unnest(outer: QueryPipeline, node: exp.Join) -> None:
    """Adds an UNNEST to the pipeline. LEFT keeps rows whose array is empty or NULL."""
    unnest, on, span = node.this, node.args.get("on"), span_of(node.this)
    is_plain = node.side in ("", "LEFT") and not node.method and not node.args.get("using")
    if not is_plain or not (on is None or (isinstance(on, exp.Boolean) and on.this)):
        raise error("E013", "this join with UNNEST is not supported", span, _HINT)
    alias = unnest.alias
    if alias and outer.scope.has_table(alias, False):
        raise error("E020", f"there are two relations named {alias} in this FROM", span, "Give one of them an alias.")
    array = outer.translator().translate(unnest.expressions[0])
    if array.type.name != "array":
        hint = None
        if array.type.name == "relation":
            hint = "The rows of a nested relation are those of the query that it was made of: read that query."
        raise error("E031", f"UNNEST needs an array, not {array.type}", span, hint)
    column = outer.extend("unnested", array)
    default_names, written = [alias or "unnest", "ordinality"], unnest.alias_column_names
    wanted = [*written, *default_names[len(written) :]]
    element = free_name(wanted[0], outer.heading.columns)
    ordinality = free_name(wanted[1], {*outer.heading.columns, element})
    is_left = node.side == "LEFT"
    outer.rel = mmpl.Ungroup(outer.rel, column, (element,), ordinality, is_left, span=span)
    columns, hidden = NameTable({default_names[0]: element}), {ordinality: ordinality}
    if unnest.args.get("offset"):
        columns.add(default_names[1], ordinality)
        hidden = {}
    item = FromItem(alias, columns, hidden)
    apply_column_aliases(item, unnest)
    outer.scope.from_items.append(item)
