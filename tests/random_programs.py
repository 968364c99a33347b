"""Random programs that are well typed: every operator, views on views, small domains so that rows meet.

All randomness is the given `Random`'s: a seed is a program.
"""

from decimal import Decimal
from random import Random

from smile.algebra import mmpl
from smile.algebra.heading import Heading, Headings, stream_heading
from smile.algebra.scalars import resolve
from smile.algebra.types import BOOL, INT, STRING, TIME, DataType, Value
from smile.errors import SmileError
from smile.knowledge.analysis import Analysis

STREAMS = (
    mmpl.StreamDef(
        "S",
        "t",
        (("a", INT), ("n", INT), ("k", STRING), ("at", TIME)),
        (
            mmpl.Call(">=", (mmpl.Column("n"), mmpl.Constant(0, INT))),
            mmpl.Call("<=", (mmpl.Column("n"), mmpl.Constant(5, INT))),
            mmpl.Call("is not null", (mmpl.Column("n"),)),
        ),
    ),
    mmpl.StreamDef("R", "u", (("b", INT), ("k", STRING), ("ref", TIME))),
    mmpl.StreamDef("Q", "v", (("a", INT), ("k", STRING))),
)
WORDS = ("x", "y", "z")
TICKS = 24
"""Streams in tests have about so many ticks; windows and intervals are of that size."""


class RandomProgram:
    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.streams = STREAMS
        self.views: list[mmpl.ViewDef] = []
        self.names = 0

    def program(self, views: int) -> mmpl.Program:
        for number in range(1, views + 1):
            body = self.relation(self.rng.randint(1, 4))
            self.views.append(mmpl.ViewDef(f"V{number}", body))
        names = [v.name for v in self.views]
        subscribed = sorted(self.rng.sample(names, self.rng.randint(1, len(names))))
        return mmpl.Program(self.streams, tuple(self.views), tuple(subscribed))

    def relation(self, operators: int) -> mmpl.Rel:
        """A pipeline; an operator that does not fit what it is put on is left out."""
        rel = self.some_relation()
        for _ in range(operators):
            for _ in range(5):
                candidate = self.operator(rel)
                if candidate is not None and self.is_well_formed(candidate):
                    rel = candidate
                    break
        return rel

    def is_well_formed(self, rel: mmpl.Rel) -> bool:
        try:
            Analysis(mmpl.Program(self.streams, (*self.views, mmpl.ViewDef("new", rel)), ()))
        except SmileError:
            return False
        return True

    def some_relation(self) -> mmpl.Rel:
        names = [s.name for s in self.streams] + [v.name for v in self.views[-4:]] * 2
        return mmpl.Ref(self.rng.choice(names))

    def heading(self, rel: mmpl.Rel) -> Heading:
        headings = Headings({s.name: stream_heading(s) for s in self.streams})
        for view in self.views:
            headings.relations[view.name] = headings.of(view.body)
        return headings.of(rel)

    def fresh(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    # ── operators ───────────────────────────────────────────────────────────────────────────────────────────────────

    def operator(self, rel: mmpl.Rel) -> mmpl.Rel | None:
        makers = [
            self.restrict, self.restrict, self.extend, self.project, self.rename, self.join, self.join, self.join, self.asof,
            self.summarize, self.summarize, self.summarize, self.distinct, self.best, self.window, self.window, self.over,
            self.silence, self.merge, self.union,
        ]  # fmt: skip
        return self.rng.choice(makers)(rel, self.heading(rel))

    def restrict(self, rel: mmpl.Rel, heading: Heading) -> mmpl.Rel:
        return mmpl.Restrict(rel, self.predicate(heading, 2))

    def extend(self, rel: mmpl.Rel, heading: Heading) -> mmpl.Rel:
        return mmpl.Extend(
            rel, ((self.fresh("e"), self.expression(heading, self.rng.choice((INT, INT, STRING, BOOL)), 2)),)
        )

    def project(self, rel: mmpl.Rel, heading: Heading) -> mmpl.Rel:
        count = self.rng.randint(1, len(heading.visible)) if heading.visible else 0
        return mmpl.Project(rel, tuple(self.rng.sample(heading.visible, count)))

    def rename(self, rel: mmpl.Rel, heading: Heading) -> mmpl.Rel:
        return mmpl.Rename(rel, ((self.rng.choice(list(heading.columns)), self.fresh("r")),))

    def apart(self, rel: mmpl.Rel, taken: Heading, keep: str | None = None) -> mmpl.Rel:
        """The same relation with names that clash with none of `taken`'s, but for the one to keep."""
        clashes = [c for c in self.heading(rel).columns if c in taken.columns and c != keep]
        return mmpl.Rename(rel, tuple((c, self.fresh(c)) for c in clashes)) if clashes else rel

    def join(self, rel: mmpl.Rel, heading: Heading) -> mmpl.Rel | None:
        other = self.some_relation()
        kind = self.rng.choice(("inner", "inner", "inner", "left", "right", "full", "semi", "anti", "match"))
        shared = [c for c, t in self.heading(other).columns.items() if heading.columns.get(c) == t]
        if shared and self.rng.random() < 0.5:
            name = self.rng.choice(shared)
            other, on = self.apart(other, heading, keep=name), ((name, name),)
        else:
            other = self.apart(other, heading)
            pairs = [
                (a, b) for a, t in heading.columns.items() for b, u in self.heading(other).columns.items() if t == u
            ]
            if not pairs:
                return None
            on = (self.rng.choice(pairs),)
        both = Heading({**self.heading(other).columns, **heading.columns}, ())
        when = self.predicate(both, 1) if kind != "inner" and self.rng.random() < 0.4 else None
        mark = self.fresh("m") if kind == "match" else None
        aware = kind in ("anti", "match") and when is None and self.rng.random() < 0.3
        return mmpl.Join(kind, rel, other, on, when, mark, aware)  # type: ignore[arg-type]

    def asof(self, rel: mmpl.Rel, heading: Heading) -> mmpl.Rel | None:
        other = self.apart(self.some_relation(), heading)
        right = self.heading(other)
        if not heading.tick or not right.tick:
            return None
        pairs = [(a, b) for a, t in heading.columns.items() for b, u in right.columns.items() if t == u == STRING]
        on = (self.rng.choice(pairs),) if pairs and self.rng.random() < 0.7 else ()
        kind = self.rng.choice(("inner", "left"))
        return mmpl.Asof(kind, rel, other, on, (heading.tick[0], right.tick[0]))  # type: ignore[arg-type]

    def summarize(self, rel: mmpl.Rel, heading: Heading) -> mmpl.Rel:
        groupable = [c for c in heading.columns if heading.columns[c].name in ("int", "string", "time", "bool")]
        per = tuple(self.rng.sample(groupable, min(len(groupable), self.rng.choice((0, 1, 1, 1, 2)))))
        count = self.rng.randint(1, 2)
        return mmpl.Summarize(rel, per, tuple((self.fresh("g"), self.aggregate(heading)) for _ in range(count)))

    def aggregate(self, heading: Heading) -> mmpl.Aggregate:
        function = self.rng.choice(
            ("sum", "sum", "count", "count", "min", "max", "avg", "latest", "count_distinct", "group")
        )
        if function == "group":
            return mmpl.Aggregate(
                "group", columns=tuple(self.rng.sample(heading.visible, min(1, len(heading.visible))))
            )
        if function == "count" and self.rng.random() < 0.5:
            return mmpl.Aggregate("count")
        return mmpl.Aggregate(function, self.expression(heading, INT, 1))  # type: ignore[arg-type]

    def distinct(self, rel: mmpl.Rel, heading: Heading) -> mmpl.Rel:
        return mmpl.Distinct(self.project(rel, heading))

    def best(self, rel: mmpl.Rel, heading: Heading) -> mmpl.Rel:
        per = tuple(self.rng.sample(list(heading.columns), self.rng.choice((0, 0, 1))))
        by = ((self.expression(heading, INT, 1), self.rng.random() < 0.5),)
        return mmpl.Best(rel, self.rng.randint(1, 3), by, per)

    def window(self, rel: mmpl.Rel, heading: Heading) -> mmpl.Rel | None:
        times = [c for c, t in heading.columns.items() if t == TIME]
        if not times:
            return None
        kind = self.rng.choice(("tumble", "tumble", "hop", "last"))
        on = heading.tick[0] if heading.tick and self.rng.random() < 0.8 else self.rng.choice(times)
        slide = self.rng.randint(2, 5) if kind == "hop" else None
        return mmpl.Window(kind, rel, on, self.rng.randint(2, TICKS // 2), slide)  # type: ignore[arg-type]

    def over(self, rel: mmpl.Rel, heading: Heading) -> mmpl.Rel | None:
        if not heading.tick:
            return None
        strings = [c for c, t in heading.columns.items() if t == STRING]
        per = tuple(self.rng.sample(strings, min(len(strings), self.rng.randint(0, 1))))
        reach = self.rng.choice((None, self.rng.randint(1, TICKS // 2)))
        return mmpl.Over(rel, per, heading.tick[0], reach, ((self.fresh("o"), self.aggregate(heading)),))

    def silence(self, rel: mmpl.Rel, heading: Heading) -> mmpl.Rel | None:
        if len(heading.key) != 1 or heading.tick != heading.key:
            return None
        strings = [c for c, t in heading.columns.items() if t == STRING]
        per = tuple(self.rng.sample(strings, min(len(strings), self.rng.randint(0, 1))))
        return mmpl.Silence(rel, self.fresh("q"), heading.tick[0], per, self.rng.randint(1, 6))

    def merge(self, rel: mmpl.Rel, heading: Heading) -> mmpl.Rel | None:
        return mmpl.Merge((rel, mmpl.Restrict(rel, self.predicate(heading, 1)))) if heading.tick else None

    def union(self, rel: mmpl.Rel, heading: Heading) -> mmpl.Rel:
        return mmpl.Union((rel, mmpl.Restrict(rel, self.predicate(heading, 1))))

    # ── expressions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def predicate(self, heading: Heading, depth: int) -> mmpl.Expr:
        if depth and self.rng.random() < 0.3:
            function = self.rng.choice(("and", "or", "not"))
            count = 1 if function == "not" else 2
            return mmpl.Call(function, tuple(self.predicate(heading, depth - 1) for _ in range(count)))
        columns = [c for c, t in heading.columns.items() if t.is_ordered]
        if not columns or self.rng.random() < 0.05:
            return mmpl.Constant(self.rng.choice((True, False, None)), BOOL)
        name = self.rng.choice(columns)
        if heading.columns[name] == BOOL and self.rng.random() < 0.7:
            return mmpl.Column(name)
        if self.rng.random() < 0.1:
            return mmpl.Call(self.rng.choice(("is null", "is not null")), (mmpl.Column(name),))
        function = self.rng.choice((">", ">", ">=", "<", "<=", "=", "<>"))
        return mmpl.Call(function, (mmpl.Column(name), self.like(heading, name)))

    def like(self, heading: Heading, name: str) -> mmpl.Expr:
        """Something to compare a column with: a constant of its type, or another column."""
        same = [c for c, t in heading.columns.items() if t == heading.columns[name] and c != name]
        if same and self.rng.random() < 0.3:
            return mmpl.Column(self.rng.choice(same))
        return mmpl.Constant(self.constant(heading.columns[name]), heading.columns[name])

    def constant(self, data: DataType) -> Value:
        match data.name:
            case "int":
                return self.rng.randint(-3, 6)
            case "decimal":
                return Decimal(self.rng.randint(-3, 12)).quantize(Decimal(1).scaleb(-(data.scale or 0)))
            case "float":
                return self.rng.randint(-6, 12) / 2
            case "string":
                return self.rng.choice(WORDS)
            case "time":
                return self.rng.randint(0, TICKS)
            case "bool":
                return self.rng.random() < 0.5
        return None

    def expression(self, heading: Heading, data: DataType, depth: int) -> mmpl.Expr:
        columns = [c for c, t in heading.columns.items() if t == data]
        choice = self.rng.random()
        if data == BOOL:
            return self.predicate(heading, depth)
        if depth and data == INT and choice < 0.4:
            args = (self.expression(heading, INT, depth - 1), self.expression(heading, INT, depth - 1))
            function = self.rng.choice(("+", "-", "*", "greatest", "least", "/"))
            assert resolve(function, (INT, INT)) is not None
            return mmpl.Call(function, args)
        if depth and choice < 0.5:
            branch = (self.predicate(heading, 1), self.expression(heading, data, depth - 1))
            return mmpl.Case((branch,), self.expression(heading, data, depth - 1))
        if columns and choice < 0.9:
            return mmpl.Column(self.rng.choice(columns))
        return mmpl.Constant(self.constant(data), data)


def random_program(seed: int, views: int) -> mmpl.Program:
    return RandomProgram(Random(seed)).program(views)
