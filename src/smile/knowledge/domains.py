"""Domains: of every relational expression, the cells of a row nobody has heard of. Whatever a row turns out to be, its
cells are within them.

They follow from the domains of stream columns, as knowledge follows from knowledge. The ranges of types are narrower:
they count ticks, and nothing is bounded by counting.
"""

from functools import singledispatchmethod

from smile.algebra import mmpl
from smile.algebra.heading import WINDOW_COLUMNS
from smile.algebra.scalars import type_of
from smile.algebra.types import BOOL, INT
from smile.knowledge.aggregates import aggregate
from smile.knowledge.analysis import Analysis
from smile.knowledge.cells import as_operand, domain, null, one_of, range_of
from smile.knowledge.known import Known
from smile.knowledge.mask import Mask
from smile.knowledge.nested import Nested
from smile.knowledge.range import Range
from smile.knowledge.transfer import know

Bottoms = dict[str, Known]


class Domains:
    def __init__(self, program: mmpl.Program, analysis: Analysis) -> None:
        self.analysis = analysis
        self.bodies = {v.name: v.body for v in program.views}
        self._known: dict[mmpl.Rel, Bottoms] = {}

    def of(self, rel: mmpl.Rel) -> Bottoms:
        found = self._known.get(rel)
        if found is None:
            found = self._known[rel] = self._compute(rel)
        return found

    def of_expression(self, expr: mmpl.Expr, rel: mmpl.Rel) -> Known:
        """Of an expression over rows of `rel`."""
        types = self.analysis.of(rel).heading.columns
        return know(expr, self.of(rel), types)

    @singledispatchmethod
    def _compute(self, rel: mmpl.Rel) -> Bottoms:
        raise AssertionError(rel)

    @_compute.register
    def _(self, rel: mmpl.Ref) -> Bottoms:
        if rel.name in self.bodies:
            return self.of(self.bodies[rel.name])
        columns = self.analysis.of(rel).columns
        return {n: Mask.bottom() if c.data == BOOL else Range.bottom(*domain(c)) for n, c in columns.items()}

    @_compute.register(mmpl.Restrict)
    @_compute.register(mmpl.Project)
    @_compute.register(mmpl.Distinct)
    @_compute.register(mmpl.Best)
    def _(self, rel: mmpl.Restrict | mmpl.Project | mmpl.Distinct | mmpl.Best) -> Bottoms:
        source = self.of(rel.input)
        return {c: source[c] for c in self.analysis.of(rel).heading.columns}

    @_compute.register
    def _(self, rel: mmpl.Extend) -> Bottoms:
        return {**self.of(rel.input), **{n: self.of_expression(e, rel.input) for n, e in rel.assignments}}

    @_compute.register
    def _(self, rel: mmpl.Rename) -> Bottoms:
        new = dict(rel.pairs)
        return {new.get(c, c): known for c, known in self.of(rel.input).items()}

    @_compute.register
    def _(self, rel: mmpl.Join) -> Bottoms:
        left, right = self.of(rel.left), self.of(rel.right)
        if rel.kind in ("semi", "anti"):
            return left
        if rel.kind == "match":
            assert rel.mark is not None
            return {**left, rel.mark: Mask.bottom()}
        columns = self.analysis.of(rel).heading.columns
        # The default row of a total relation has whatever key it is asked for.
        sources = [left, right, {b: left[a] for a, b in rel.on}, {a: right[b] for a, b in rel.on}]
        return {c: self._either(columns[c] == BOOL, [s[c] for s in sources if c in s]) for c in columns}

    @_compute.register
    def _(self, rel: mmpl.Asof) -> Bottoms:
        left, right = self.of(rel.left), self.of(rel.right)
        columns = self.analysis.of(rel).heading.columns
        return {c: left[c] if c in left else self._either(columns[c] == BOOL, [right[c]]) for c in columns}

    def _either(self, is_bool: bool, cells: list[Known]) -> Known:
        """A column of a row that may be without a match."""
        if any(isinstance(c, Nested) for c in cells):
            return cells[0]
        data = BOOL if is_bool else INT
        return one_of([*cells, null(data)], None, null(data), data)

    @_compute.register
    def _(self, rel: mmpl.Summarize) -> Bottoms:
        source = self.of(rel.input)
        return {c: source[c] for c in rel.per} | self._aggregates(rel)

    @_compute.register
    def _(self, rel: mmpl.Over) -> Bottoms:
        return self.of(rel.input) | self._aggregates(rel)

    def _aggregates(self, rel: mmpl.Summarize | mmpl.Over) -> Bottoms:
        """An aggregate of no members, while any may come."""
        found: Bottoms = {}
        types = self.analysis.of(rel).heading.columns
        for name, wanted in rel.aggregates:
            data = self.analysis.of(rel.input).heading.columns
            lo, hi, type_ = None, None, BOOL
            if wanted.arg is not None:
                argument = range_of(self.of_expression(wanted.arg, rel.input))
                lo, hi = argument.lo, argument.hi
                type_ = type_of(wanted.arg, data)
            nothing = aggregate(wanted.function, [], False, lo, hi, type_)
            bounds = Range.bottom(lo, hi)
            found[name] = nothing if isinstance(nothing, Nested) else as_operand(nothing, bounds, types[name])
        return found

    @_compute.register
    def _(self, rel: mmpl.Window) -> Bottoms:
        source = self.of(rel.input)
        return source if rel.kind == "last" else source | {c: Range.bottom() for c in WINDOW_COLUMNS}

    @_compute.register
    def _(self, rel: mmpl.Silence) -> Bottoms:
        return {**self.of(rel.input), rel.name: Mask.of((True, False), False)}

    @_compute.register(mmpl.Merge)
    @_compute.register(mmpl.Union)
    def _(self, rel: mmpl.Merge | mmpl.Union) -> Bottoms:
        sources = [self.of(i) for i in rel.inputs]
        position = "source" if isinstance(rel, mmpl.Merge) else "branch"
        columns = self.analysis.of(rel).heading.columns
        found = {c: self._either(t == BOOL, [s[c] for s in sources if c in s]) for c, t in columns.items()}
        return {**found, position: Range.between(1, len(sources))}
