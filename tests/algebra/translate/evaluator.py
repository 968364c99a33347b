"""Plain SQL's answer to an MMPL expression: lists of rows, NULL as None, nothing incremental, nothing clever."""

from collections.abc import Callable, Mapping, Sequence
from functools import cmp_to_key

from smile.algebra import mmpl
from smile.algebra.heading import Headings, whole_key_equated
from smile.algebra.scalars import evaluate_expr
from smile.algebra.types import Value

Row = dict[str, Value]


class Evaluator:
    def __init__(self, program: mmpl.Program, tables: Mapping[str, list[Row]]) -> None:
        self.headings = Headings.of_program(program)
        self.relations: dict[str, list[Row]] = dict(tables)
        for view in program.views:
            self.relations[view.name] = self.rows(view.body)

    def visible(self, name: str) -> list[tuple[Value, ...]]:
        columns = self.headings.relations[name].visible
        return [tuple(row[c] for c in columns) for row in self.relations[name]]

    def rows(self, rel: mmpl.Rel) -> list[Row]:
        match rel:
            case mmpl.Ref(name):
                return self.relations[name]
            case mmpl.Restrict(source, predicate):
                return [r for r in self.rows(source) if self._value(predicate, r, source) is True]
            case mmpl.Extend(source, assignments):
                return [{**r, **{n: self._value(e, r, source) for n, e in assignments}} for r in self.rows(source)]
            case mmpl.Rename(source, pairs):
                new = dict(pairs)
                return [{new.get(n, n): v for n, v in r.items()} for r in self.rows(source)]
            case mmpl.Project(source, _):
                kept = self.headings.of(rel).columns
                return [{n: r[n] for n in kept} for r in self.rows(source)]
            case mmpl.Distinct(source):
                kept = self.headings.of(rel).columns
                unique = dict.fromkeys(tuple(r[n] for n in kept) for r in self.rows(source))
                return [dict(zip(kept, values, strict=True)) for values in unique]
            case mmpl.Union(inputs):
                columns = self.headings.of(rel).columns
                every = [(i, r) for i, source in enumerate(inputs, 1) for r in self.rows(source)]
                return [{**dict.fromkeys(columns), **r, "branch": i} for i, r in every]
            case mmpl.Summarize():
                return self._summarize(rel)
            case mmpl.Best():
                return self._best(rel)
            case mmpl.Join():
                return self._join(rel)
        raise NotImplementedError(type(rel).__name__)

    def _value(self, expr: mmpl.Expr, row: Row, source: mmpl.Rel) -> Value:
        return evaluate_expr(expr, row, self.headings.of(source).columns)

    def _summarize(self, rel: mmpl.Summarize) -> list[Row]:
        groups: dict[tuple[Value, ...], list[Row]] = {} if rel.per else {(): []}
        for row in self.rows(rel.input):
            groups.setdefault(tuple(row[c] for c in rel.per), []).append(row)
        return [
            {**dict(zip(rel.per, key, strict=True)), **{n: self._aggregate(a, rel, rows) for n, a in rel.aggregates}}
            for key, rows in groups.items()
        ]

    def _aggregate(self, aggregate: mmpl.Aggregate, rel: mmpl.Summarize, rows: list[Row]) -> Value:
        if aggregate.arg is None:
            return len(rows)
        every = [self._value(aggregate.arg, row, rel.input) for row in rows]
        values: list[Value] = [v for v in every if v is not None]
        functions: dict[str, Callable[[list[Value]], Value]] = {
            "count": len,
            "count_distinct": lambda v: len(set(v)),
            "sum": sum,  # type: ignore[dict-item]
            "min": lambda v: min(v, default=None),  # type: ignore[type-var]
            "max": lambda v: max(v, default=None),  # type: ignore[type-var]
        }
        return functions[aggregate.function](values)

    def _best(self, rel: mmpl.Best) -> list[Row]:
        key = self.headings.of(rel).key
        groups: dict[tuple[Value, ...], list[Row]] = {}
        for row in self.rows(rel.input):
            groups.setdefault(tuple(row[c] for c in rel.per), []).append(row)

        def order(a: Row, b: Row) -> int:
            for e, descending in (*rel.by, *((mmpl.Column(c), False) for c in key)):
                x, y = self._value(e, a, rel.input), self._value(e, b, rel.input)
                if x != y:
                    first = y is None or (x is not None and x < y)  # type: ignore[operator]
                    return -1 if first != descending else 1
            return 0

        return [row for rows in groups.values() for row in sorted(rows, key=cmp_to_key(order))[: rel.k]]

    # ── joins ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _join(self, rel: mmpl.Join) -> list[Row]:
        left, right = self.rows(rel.left), self.rows(rel.right)
        if rel.kind in ("semi", "anti", "match"):
            marks = [self._found(rel, row, right) for row in left]
            if rel.kind == "match":
                assert rel.mark is not None
                return [{**row, rel.mark: mark} for row, mark in zip(left, marks, strict=True)]
            wanted = rel.kind == "semi"
            return [row for row, mark in zip(left, marks, strict=True) if mark is wanted]
        right = [*right, *self._defaults(rel, left, right)]
        pairs = [(a, b) for a in left for b in right if self._meets(rel, a, b)]
        columns = self.headings.of(rel).columns
        joined = [{**b, **a} for a, b in pairs]
        if rel.kind in ("left", "full"):
            met = {id(a) for a, _ in pairs}
            joined += [{**dict.fromkeys(columns), **a} for a in left if id(a) not in met]
        if rel.kind in ("right", "full"):
            met = {id(b) for _, b in pairs}
            joined += [{**dict.fromkeys(columns), **b} for b in right if id(b) not in met]
        return [{n: row[n] for n in columns} for row in joined]

    def _meets(self, rel: mmpl.Join, a: Row, b: Row) -> bool:
        if any(a[x] is None or b[y] is None or a[x] != b[y] for x, y in rel.on):
            return False
        return self._holds(rel, a, b)

    def _holds(self, rel: mmpl.Join, a: Row, b: Row) -> bool:
        types = {**self.headings.of(rel.right).columns, **self.headings.of(rel.left).columns}
        return rel.when is None or evaluate_expr(rel.when, {**b, **a}, types) is True

    def _found(self, rel: mmpl.Join, row: Row, right: Sequence[Row]) -> bool | None:
        if any(self._meets(rel, row, b) for b in right):
            return True
        if not rel.null_aware:
            return False
        unknown = (
            all(row[x] is None or b[y] is None or row[x] == b[y] for x, y in rel.on)
            for b in right
            if self._holds(rel, row, b)
        )
        return None if any(unknown) else False

    def _defaults(self, rel: mmpl.Join, left: list[Row], right: list[Row]) -> list[Row]:
        """The groups of a total right side that the left asks for and nobody has heard of."""
        heading = self.headings.of(rel.right)
        if not (heading.total and whole_key_equated(heading, (b for _, b in rel.on)) and rel.when is None):
            return []
        asked = {tuple(row[a] for a, b in rel.on if b in heading.key) for row in left}
        names = [b for _, b in rel.on if b in heading.key]
        heard = {tuple(row[n] for n in names) for row in right}
        zero = self._of_nothing(rel.right)
        return [{**zero, **dict(zip(names, key, strict=True))} for key in asked if key not in heard and None not in key]

    def _of_nothing(self, rel: mmpl.Rel) -> Row:
        """The default row: what an aggregate of no rows is, and what follows from it."""
        match rel:
            case mmpl.Ref(name):
                raise NotImplementedError(name)
            case mmpl.Summarize():
                return {**dict.fromkeys(rel.per), **{n: self._aggregate(a, rel, []) for n, a in rel.aggregates}}
            case mmpl.Extend(source, assignments):
                row = self._of_nothing(source)
                return {**row, **{n: self._value(e, row, source) for n, e in assignments}}
            case mmpl.Rename(source, pairs):
                new = dict(pairs)
                return {new.get(n, n): v for n, v in self._of_nothing(source).items()}
            case mmpl.Project(source, _):
                row = self._of_nothing(source)
                return {n: row[n] for n in self.headings.of(rel).columns}
        raise NotImplementedError(type(rel).__name__)
