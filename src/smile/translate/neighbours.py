"""Translates LAG and LEAD OVER (… ORDER BY t): the value of a row some positions before or after.

That of the row just before is an ASOF JOIN of the rows with themselves, so the rows may evolve. Any other is an
aggregate over a frame of one row.
"""

from sqlglot import exp

from smile import lang
from smile.algebra import mmpl, trees
from smile.algebra.types import INT, INTERVAL, TIME
from smile.errors import error
from smile.lang import span_of
from smile.operators.window import WINDOW_COLUMNS
from smile.translate.expressions import ExpressionTranslator, TypedExpr
from smile.translate.null_safe import add_comparable_columns, nulls_among
from smile.translate.over import OverFrame, add_over
from smile.translate.pipeline import QueryPipeline
from smile.translate.scope import Scope, free_name

_JUST_BEFORE = "just_before"
_ONE_TICK = mmpl.Constant(1, INTERVAL)


def is_neighbour(node: exp.Window) -> bool:
    """Whether a window function is LAG or LEAD."""
    return isinstance(node.this, exp.Anonymous) and node.this.name.upper() in lang.NEIGHBOUR_FUNCTIONS


def neighbour_rank(node: exp.Window) -> int:
    """Its place in the order in which window functions are computed: see `window_rank`."""
    if node.this.name.upper() == "LEAD":
        return 1
    arguments = node.this.expressions
    return 3 if len(arguments) == 1 or arguments[1].name == "1" else 0


def add_neighbour(
    pipeline: QueryPipeline, node: exp.Window, wanted: str, translator: ExpressionTranslator
) -> TypedExpr:
    distance = _distance(node)
    if node.this.name.upper() == "LEAD":
        return _add_single_row(pipeline, node, distance, wanted, translator)
    if distance != 1:
        return _add_single_row(pipeline, node, -distance, wanted, translator)
    return _add_row_before(pipeline, node, wanted, translator)


def _add_single_row(
    pipeline: QueryPipeline, node: exp.Window, position: int, wanted: str, translator: ExpressionTranslator
) -> TypedExpr:
    """The value of the row at a position relative to each row."""
    span, (argument, *rest) = span_of(node), node.this.expressions
    tick, value = _ordering_tick(pipeline, node, translator), translator.translate(argument)
    partition = tuple(translator.translate(p) for p in node.args.get("partition_by") or [])
    frame = OverFrame(partition, tick, positions=(position, position), span=span)
    aggregates = [(wanted or node.this.name.lower(), mmpl.Aggregate("latest", value.expr, span=span))]
    if len(rest) > 1:
        aggregates.append(("rows", mmpl.Aggregate("count")))
    name, *counts = add_over(pipeline, frame, aggregates)
    found = mmpl.ColumnRef(name, span=span)
    if not counts:
        return TypedExpr(found, value.type)
    count = mmpl.ColumnRef(counts[0], span=span)
    is_outside = mmpl.Call("=", (count, mmpl.Constant(0, INT)), span=span)
    otherwise = translator.coerce(translator.translate(rest[1]), value.type, span_of(rest[1]))
    return TypedExpr(mmpl.Case(((is_outside, otherwise),), found, span=span), value.type)


def _add_row_before(
    pipeline: QueryPipeline, node: exp.Window, wanted: str, translator: ExpressionTranslator
) -> TypedExpr:
    """Adds the columns of the row before each row, in its partition. The row before has the greatest tick that is at
    most one less."""
    span, (argument, *rest) = span_of(node), node.this.expressions
    tick = _ordering_time(pipeline, node, translator)
    default = rest[1] if len(rest) > 1 else None
    value = translator.translate(argument)
    partition = [("partition", translator.translate(p)) for p in node.args.get("partition_by") or []]
    needed = {tick, *(c for typed in (value, *(p for _, p in partition)) for c in trees.columns_in(typed.expr))}
    source = QueryPipeline(pipeline.rows_with(needed), Scope(), pipeline.catalog)
    before = source.extend("value", value)
    per = source.extend_all(partition)
    nulls = nulls_among(source, per)
    right_groups = add_comparable_columns(source, per, nulls)
    columns = tuple(dict.fromkeys((tick, before, *right_groups)))
    source.rel = mmpl.Project(source.rel, columns, span=span)
    groups = add_comparable_columns(pipeline, pipeline.extend_all(partition), nulls)
    just_before = pipeline.extend(
        _JUST_BEFORE, TypedExpr(mmpl.Call("-", (mmpl.ColumnRef(tick), _ONE_TICK), span=span), TIME)
    )
    taken = set(pipeline.heading.columns)
    new_names: dict[str, str] = {}
    for column in source.heading.columns:
        new_names[column] = free_name(wanted or "lag" if column == before else f"{column}_before", taken)
        taken.add(new_names[column])
    right = mmpl.Rename(source.rel, tuple(new_names.items()), span=span)
    on = tuple((group, new_names[other]) for group, other in zip(groups, right_groups, strict=True))
    pipeline.rel = mmpl.Asof("left", pipeline.rel, right, on, (just_before, new_names[tick]), span=span)
    previous = TypedExpr(mmpl.ColumnRef(new_names[before], span=span), value.type)
    if default is None:
        return previous
    is_first = mmpl.Call("is null", (mmpl.ColumnRef(new_names[tick]),), span=span)
    otherwise = translator.coerce(translator.translate(default), value.type, span_of(default))
    return TypedExpr(mmpl.Case(((is_first, otherwise),), previous.expr, span=span), value.type)


def _ordering_time(pipeline: QueryPipeline, node: exp.Window, translator: ExpressionTranslator) -> str:
    """The tick, or a time that with the columns of PARTITION BY identifies a row."""
    order, key = node.args.get("order"), pipeline.heading.key
    items = order.expressions if order is not None else []
    column = translator.translate(items[0].this).expr if len(items) == 1 else None
    if isinstance(column, mmpl.ColumnRef) and not items[0].args.get("desc") and column.name in key:
        partition = [translator.translate(p).expr for p in node.args.get("partition_by") or []]
        identifying = {column.name, *(p.name for p in partition if isinstance(p, mmpl.ColumnRef))}
        if pipeline.heading.columns[column.name] == TIME and identifying.issuperset(key):
            return column.name
    return _ordering_tick(pipeline, node, translator)


def _ordering_tick(pipeline: QueryPipeline, node: exp.Window, translator: ExpressionTranslator) -> str:
    order = node.args.get("order")
    items = order.expressions if order is not None else []
    column = translator.translate(items[0].this).expr if len(items) == 1 else None
    if not isinstance(column, mmpl.ColumnRef) or items[0].args.get("desc") or pipeline.heading.tick != (column.name,):
        name = node.this.name.upper()
        hint = f"Write {name}(x) OVER (PARTITION BY a ORDER BY t), where t is the tick of the stream."
        if isinstance(column, mmpl.ColumnRef) and column.name in WINDOW_COLUMNS:
            hint = (
                "LAG(x) over windows needs in PARTITION BY what else they are grouped by. For other windows, join the "
                "query with itself: ON a.window_start = b.window_end."
            )
        raise error("E046", f"{name} needs ORDER BY the tick of the relation, ascending", span_of(node), hint)
    return column.name


def _distance(node: exp.Window) -> int:
    """How many positions before or after a row is the other one."""
    arguments = node.this.expressions
    if len(arguments) == 1:
        return 1
    distance = arguments[1]
    if not isinstance(distance, exp.Literal) or distance.is_string or not distance.name.isdecimal():
        name = node.this.name.upper()
        raise error("E013", f"{name} by a computed number of rows is not supported", span_of(node), "Write a number.")
    return int(distance.name)
