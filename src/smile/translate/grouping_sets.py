"""GROUPING SETS, ROLLUP and CUBE: a UNION ALL of one query for each set, with NULL for the other expressions.

GROUPING(a, b) is a constant of each of these queries: a bit for each argument, 1 if it is not in the set.
"""

from itertools import combinations

from sqlglot import exp

from smile import limits
from smile.errors import error
from smile.lang import AGGREGATES, DERIVED_AGGREGATES, PERCENTILES, ArrayAggregate, StringAggregate, span_of, widen_span

_AGGREGATES = (
    *AGGREGATES.values(),
    *DERIVED_AGGREGATES.values(),
    *PERCENTILES.values(),
    StringAggregate,
    ArrayAggregate,
)
GroupingSet = list[exp.Expr]


def expand_grouping_sets(select: exp.Select) -> exp.Query:
    """The query itself if its GROUP BY has expressions only."""
    group = select.args.get("group")
    if group is None:
        return select
    if not any(isinstance(e, exp.GroupingSets | exp.Rollup | exp.Cube) for e in group.expressions):
        if not any(_is_grouping(node) for node in select.walk(bfs=False)):
            return select
        select = select.copy()
        grouped = [e.unnest() for e in group.expressions]
        _replace_grouping(select, grouped, grouped)
        return select
    refused = next((a for a in ("distinct", "qualify", "best") if select.args.get(a) is not None), None)
    if refused is not None:
        message = f"grouping sets with {refused.upper()} are not supported"
        raise error("E013", message, span_of(group), "Put the query with grouping sets into a subquery.")
    sets: list[GroupingSet] = [[]]
    for item in group.expressions:
        sets = [[*before, *added] for before in sets for added in _sets_of(item)]
        if len(sets) > limits.grouping_sets_max:
            message = f"there are more than {limits.grouping_sets_max} grouping sets"
            raise error("E013", message, span_of(group), "List the sets that you need with GROUPING SETS.")
    grouped = [e for grouping_set in sets for e in grouping_set]
    branches: list[exp.Query] = [_branch(select, grouping_set, grouped) for grouping_set in sets]
    union = branches[0]
    for branch in branches[1:]:
        union = exp.Union(this=union, expression=branch, distinct=False)
        if span := span_of(select):
            union.meta["span"] = span
    for clause in ("with_", "order", "limit"):
        if select.args.get(clause) is not None:
            union.set(clause, select.args[clause].copy())
    return union


def _sets_of(item: exp.Expr) -> list[GroupingSet]:
    """The sets that one item of GROUP BY stands for."""
    if isinstance(item, exp.GroupingSets):
        return [s for e in item.expressions for s in _sets_of(e)]
    if isinstance(item, exp.Rollup | exp.Cube):
        parts = [_members(e) for e in item.expressions]
        counts = range(len(parts), -1, -1)
        if isinstance(item, exp.Rollup):
            return [[e for part in parts[:count] for e in part] for count in counts]
        if 2 ** len(parts) > limits.grouping_sets_max:
            message = f"there are more than {limits.grouping_sets_max} grouping sets"
            raise error("E013", message, span_of(item), "List the sets that you need with GROUPING SETS.")
        return [[e for part in chosen for e in part] for count in counts for chosen in combinations(parts, count)]
    return [_members(item)]


def _members(item: exp.Expr) -> GroupingSet:
    return list(item.expressions) if isinstance(item, exp.Tuple) else [item.unnest()]


def _branch(select: exp.Select, grouping_set: GroupingSet, grouped: GroupingSet) -> exp.Select:
    """The query for one set. Within aggregates, columns are those of the rows, and stay as they are."""
    branch = select.copy()
    for clause in ("with_", "order", "limit"):
        branch.set(clause, None)
    branch.set("group", exp.Group(expressions=[e.copy() for e in grouping_set]) if grouping_set else None)
    _replace_grouping(branch, grouping_set, grouped)
    absent = [e for e in grouped if e not in grouping_set]
    branch.set("expressions", [_without(output, absent, i + 1) for i, output in enumerate(branch.expressions)])
    having = branch.args.get("having")
    if having is not None:
        having.set("this", _with_nulls(having.this, absent))
    return branch


def _is_grouping(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.upper() == "GROUPING"


def _replace_grouping(select: exp.Select, grouping_set: GroupingSet, grouped: GroupingSet) -> None:
    """Replaces GROUPING in the select list and in HAVING."""
    having = select.args.get("having")
    for part in [*select.expressions, *([having] if having is not None else [])]:
        for node in list(part.walk(bfs=False, prune=lambda n: isinstance(n, exp.Query))):
            if _is_grouping(node):
                node.replace(_grouping_bits(node, grouping_set, grouped))


def _grouping_bits(node: exp.Expr, grouping_set: GroupingSet, grouped: GroupingSet) -> exp.Expr:
    bits = 0
    for argument in node.expressions:
        if argument not in grouped:
            hint = "Write GROUPING(a, b) with the expressions as they are in GROUP BY."
            raise error("E041", "GROUPING takes expressions of GROUP BY", span_of(argument) or span_of(node), hint)
        bits = 2 * bits + (argument not in grouping_set)
    literal = exp.Literal.number(bits)
    if span := span_of(node):
        widen_span(literal, span)
    return literal


def _without(output: exp.Expr, absent: GroupingSet, number: int) -> exp.Expr:
    """An output in which the absent expressions are NULL. A number or an alias in GROUP BY means a whole output."""
    names = [e.name for e in absent if isinstance(e, exp.Literal) or (isinstance(e, exp.Column) and not e.table)]
    body = output.unalias()
    is_absent = body in absent or str(number) in names or (isinstance(output, exp.Alias) and output.alias in names)
    replaced: exp.Expr = exp.Null() if is_absent else _with_nulls(body, absent)
    if isinstance(output, exp.Alias):
        output.set("this", replaced)
        return output
    return exp.alias_(replaced, output.name, quoted=True) if is_absent and output.name else replaced


def _with_nulls(node: exp.Expr, absent: GroupingSet) -> exp.Expr:
    if node in absent:
        return exp.Null()
    if isinstance(node, (*_AGGREGATES, exp.Query)):
        return node
    for child in list(node.iter_expressions()):
        replaced = _with_nulls(child, absent)
        if replaced is not child:
            child.replace(replaced)
    return node
