"""Finds the inner joins that keep rows without a match, and show NULL for it: W005.

A join that equates the whole key of a total relation keeps every row of the other side, because groups without members
have default rows. A count or a sum of nothing is 0, which is a value like others. Other aggregates are NULL there: who
is used to other databases expects that the join drops these rows. A condition that is never true of NULL does.
"""

from collections.abc import Iterable, Iterator, Mapping

from sqlglot import exp

from smile import lang
from smile.algebra import mmpl, trees
from smile.algebra.functions.catalogue import SCALAR_FUNCTIONS
from smile.algebra.heading import is_key_equated
from smile.analysis.headings import Headings
from smile.errors import Diagnostic
from smile.lang import span_of
from smile.operators.aggregates import default_value
from smile.source import Span

_HINT = (
    "Write LEFT JOIN if this is meant. To drop these rows, add WHERE {column} IS NOT NULL, or HAVING COUNT(*) > 0 to "
    "the query of the groups."
)


def unmatched_rows_warnings(statements: Iterable[lang.Statement], program: mmpl.Program) -> list[Diagnostic]:
    """The warnings about the joins that are written in views, without LEFT, RIGHT or FULL."""
    written: dict[str, set[Span]] = {}
    for statement in statements:
        if isinstance(statement, lang.CreateView):
            joins = (j for j in statement.query.find_all(exp.Join) if not j.side and not j.method)
            if spans := {span for j in joins if (span := span_of(j)) is not None}:
                written[statement.name.text] = spans
    if not written:
        return []
    search = _Search({view.name: view.body for view in program.views}, Headings.from_program(program))
    return [w for view in program.views if view.name in written for w in search.warnings(view, written[view.name])]


class _Search:
    def __init__(self, bodies: Mapping[str, mmpl.Rel], headings: Headings) -> None:
        self.bodies, self.headings = bodies, headings

    def warnings(self, view: mmpl.ViewDef, written: set[Span]) -> Iterator[Diagnostic]:
        """`written` are the positions of the joins to look at."""
        stack: list[tuple[mmpl.Rel, frozenset[str], tuple[mmpl.Expr, ...]]] = [
            (view.body, frozenset(self.headings.heading_of(view.body).visible), ())
        ]
        while stack:
            rel, needed, conditions = stack.pop()
            if isinstance(rel, mmpl.Join) and rel.kind == "inner" and rel.span in written:
                yield from self._join_warnings(view.name, rel, needed, conditions)
            stack += self._inputs(rel, needed, conditions)

    def _join_warnings(
        self, view: str, join: mmpl.Join, needed: frozenset[str], conditions: Iterable[mmpl.Expr]
    ) -> Iterator[Diagnostic]:
        for side, position in ((join.left, 0), (join.right, 1)):
            heading = self.headings.heading_of(side)
            if not heading.total or not is_key_equated(heading, (pair[position] for pair in join.on)):
                continue
            nulls = self._null_by_default(side)
            if any(_is_never_true(condition, nulls) for condition in conditions):
                continue
            shown = [c for c in heading.visible if c in nulls & needed]
            if shown:
                message = f"a JOIN of {view} keeps the rows without a match, and {', '.join(shown)} is NULL there"
                yield Diagnostic("W005", message, join.span, _HINT.format(column=shown[0]))

    def _inputs(
        self, rel: mmpl.Rel, needed: frozenset[str], conditions: tuple[mmpl.Expr, ...]
    ) -> list[tuple[mmpl.Rel, frozenset[str], tuple[mmpl.Expr, ...]]]:
        """The inputs, each with the columns of it that are needed, and the conditions that hold of what is shown."""
        match rel:
            case mmpl.Project():
                return [(rel.input, needed & set(rel.columns), conditions)]
            case mmpl.Restrict():
                added = tuple(trees.conjuncts(rel.predicate))
                return [(rel.input, needed | trees.columns_in(rel.predicate), (*conditions, *added))]
            case mmpl.Rename():
                old = {new: old for old, new in rel.pairs}
                renamed = tuple(trees.rename_columns(c, old) for c in conditions)
                return [(rel.input, frozenset(old.get(c, c) for c in needed), renamed)]
            case mmpl.Extend():
                values = dict(rel.assignments)
                read = frozenset(c for n in needed & values.keys() for c in trees.columns_in(values[n]))
                replaced = tuple(_with_values(c, values) for c in conditions)
                return [(rel.input, (needed - values.keys()) | read, replaced)]
            case mmpl.Join(kind="inner" | "left" | "semi" | "anti" | "match"):
                read = needed | (trees.columns_in(rel.when) if rel.when is not None else frozenset())
                sides = (rel.left, rel.right) if rel.kind == "inner" else (rel.left,)
                others = [(rel.right, frozenset[str](), ())] if rel.kind != "inner" else []
                return [*((side, self._columns(side, read), conditions) for side in sides), *others]
        return [(i, frozenset(self.headings.heading_of(i).columns), ()) for i in trees.inputs_of(rel)]

    def _columns(self, rel: mmpl.Rel, needed: frozenset[str]) -> frozenset[str]:
        return needed & self.headings.heading_of(rel).columns.keys()

    def _null_by_default(self, rel: mmpl.Rel) -> frozenset[str]:
        """The columns of a total relation that are NULL in its default rows. Nested relations are empty there."""
        match rel:
            case mmpl.RelationRef():
                return self._null_by_default(self.bodies[rel.name]) if rel.name in self.bodies else frozenset()
            case mmpl.Summarize():
                types = self.headings.heading_of(rel).columns
                calls = ((n, a) for n, a in rel.aggregates if a.function != "group")
                return frozenset(n for n, a in calls if default_value(a, types[n]) is None)
            case mmpl.Project():
                return self._null_by_default(rel.input) & set(rel.columns)
            case mmpl.Rename():
                new_names = dict(rel.pairs)
                return frozenset(new_names.get(c, c) for c in self._null_by_default(rel.input))
            case mmpl.Extend():
                nulls = self._null_by_default(rel.input)
                return nulls | {n for n, e in rel.assignments if _is_null(e, nulls)}
            case mmpl.Join():
                return self._null_by_default(rel.left) | self._null_by_default(rel.right)
        return frozenset()


def _with_values(expr: mmpl.Expr, values: Mapping[str, mmpl.Expr]) -> mmpl.Expr:
    return trees.rebuild_expr(expr, lambda e: values.get(e.name, e) if isinstance(e, mmpl.ColumnRef) else e)


def _is_never_true(predicate: mmpl.Expr, nulls: frozenset[str]) -> bool:
    """Whether it is false or NULL if these columns are NULL, as far as that is simple to see."""
    match predicate:
        case mmpl.Call("and", args):
            return any(_is_never_true(a, nulls) for a in args)
        case mmpl.Call("or", args):
            return all(_is_never_true(a, nulls) for a in args)
        case mmpl.Call("is not null", (arg,)):
            return _is_null(arg, nulls)
    return _is_null(predicate, nulls)


def _is_null(expr: mmpl.Expr, nulls: frozenset[str]) -> bool:
    match expr:
        case mmpl.ColumnRef(name):
            return name in nulls
        case mmpl.Cast(arg, _):
            return _is_null(arg, nulls)
        case mmpl.Call(function, args):
            return SCALAR_FUNCTIONS[function].strict and any(_is_null(a, nulls) for a in args)
    return False
