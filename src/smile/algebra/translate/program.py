"""Statements to one MMPL program: domains become checks, views are put in the order in which they depend."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from smile import lang
from smile.algebra import mmpl
from smile.algebra.heading import Headings, stream_heading
from smile.algebra.order import in_order
from smile.algebra.translate.expressions import Expressions
from smile.algebra.translate.pipeline import BrokenDependency, Catalog
from smile.algebra.translate.queries import name_columns, translate_query
from smile.algebra.translate.scope import Item, Names, Scope
from smile.algebra.translate.typenames import DECIMALS, SPELLINGS, parse_type_name
from smile.algebra.types import BOOL, INT, STRING, TIME, DataType
from smile.errors import Diagnostic, SmileError, error, nearest
from smile.lang import span_of
from smile.source import Span

VALUE = "VALUE"


@dataclass(frozen=True)
class _Domain:
    """`checks` are predicates over the column VALUE."""

    type: DataType
    checks: tuple[mmpl.Expr, ...] = ()


_FROM_ZERO = _Domain(INT, (mmpl.Call(">=", (mmpl.Column(VALUE), mmpl.Constant(0, INT))),))
PREDEFINED = {"shares": _FROM_ZERO, "centspershare": _FROM_ZERO, "centspersshare": _FROM_ZERO}
"""The domains of the paper's program, which a program may define otherwise."""


def translate(statements: Sequence[lang.Statement]) -> tuple[mmpl.Program, list[Diagnostic]]:
    """The program, as far as it has no errors, and the errors."""
    translation = _Translation()
    for statement in statements:
        if isinstance(statement, lang.CreateDomain):
            translation.attempt(translation.domain, statement)
    for statement in statements:
        if isinstance(statement, lang.CreateStream):
            translation.attempt(translation.stream, statement)
    translation.views([s for s in statements if isinstance(s, lang.CreateView)])
    for statement in statements:
        if isinstance(statement, lang.Subscribe):
            translation.attempt(translation.subscribe, statement)
    return translation.program(), translation.problems


class _Translation:
    def __init__(self) -> None:
        self.problems: list[Diagnostic] = []
        self.domains: Names[_Domain] = Names()
        self.streams: list[mmpl.StreamDef] = []
        self.view_defs: list[mmpl.ViewDef] = []
        self.subscriptions: dict[str, None] = {}
        self.catalog = Catalog(Names(), Headings())

    def program(self) -> mmpl.Program:
        return mmpl.Program(tuple(self.streams), tuple(self.view_defs), tuple(self.subscriptions))

    def attempt(self, step, statement) -> bool:  # type: ignore[no-untyped-def]
        try:
            step(statement)
        except SmileError as problem:
            self.problems += problem.diagnostics
            return False
        except BrokenDependency:
            return False
        except RecursionError:
            self.problems.append(Diagnostic("E012", "this statement is nested too deeply", statement.span))
            return False
        return True

    # ── domains and streams ─────────────────────────────────────────────────────────────────────────────────────────

    def domain(self, statement: lang.CreateDomain) -> None:
        name = statement.name
        if self.domains.find(name.text, name.quoted) is not None:
            raise error("E020", f"there are two domains named {name.text}", name.span)
        base = self._type(statement.base, statement.base_span)
        checks = list(base.checks)
        if statement.not_null:
            checks.append(mmpl.Call("is not null", (mmpl.Column(VALUE),), span=statement.span))
        if statement.check is not None:
            checks += _predicates(statement.check, {VALUE: base.type})
        self.domains.add(name.text, _Domain(base.type, tuple(checks)))

    def _type(self, text: str, span: Span) -> _Domain:
        defined = self.domains.find(text, False)
        if defined is not None:
            return self.domains[defined]
        known = parse_type_name(text, span)
        if known is not None:
            type, length = known
            if length is None:
                return _Domain(type)
            measured = mmpl.Call("length", (mmpl.Column(VALUE),))
            return _Domain(type, (mmpl.Call("<=", (measured, mmpl.Constant(length, INT))),))
        if text.casefold() in PREDEFINED:
            return PREDEFINED[text.casefold()]
        hint = nearest(text, (*self.domains, *PREDEFINED, *SPELLINGS, *DECIMALS))
        raise error("E025", f"there is no type or domain {text}", span, hint)

    def stream(self, statement: lang.CreateStream) -> None:
        self.catalog.broken.add(statement.name.text, None)
        problems: list[Diagnostic] = []
        columns: dict[str, DataType] = {}
        checks: list[mmpl.Expr] = []
        declared: Names[None] = Names()
        for column in (statement.tick, *statement.columns):
            try:
                if declared.find(column.name.text, column.name.quoted) is not None:
                    raise error("E020", f"there are two columns named {column.name.text}", column.name.span)
                declared.add(column.name.text, None)
                domain = self._type(column.type_name, column.type_span)
                if column is statement.tick and domain.type != TIME:
                    raise error("E040", f"the key of a stream is a time, {column.name.text} is {domain.type}",
                                column.type_span)  # fmt: skip
                columns[column.name.text] = domain.type
                own = mmpl.Column(column.name.text, span=column.span)
                if column.not_null and column is not statement.tick:
                    checks.append(mmpl.Call("is not null", (own,), span=column.span))
                checks += [mmpl.rename_columns(check, {VALUE: own.name}) for check in domain.checks]
            except SmileError as problem:
                problems += problem.diagnostics
        if not problems:
            for node in (*(c for d in (statement.tick, *statement.columns) for c in d.checks), *statement.checks):
                try:
                    checks += _predicates(node, columns)
                except SmileError as problem:
                    problems += problem.diagnostics
        if problems:
            raise SmileError(problems)
        tick = statement.tick.name.text
        others = tuple((n, t) for n, t in columns.items() if n != tick)
        stream = mmpl.StreamDef(
            statement.name.text, tick, others, tuple(dict.fromkeys(checks)), statement.publisher_timed,
            span=statement.span,
        )  # fmt: skip
        self._declare(statement.name)
        self.streams.append(stream)
        self.catalog.headings.relations[stream.name] = stream_heading(stream)

    def _declare(self, name: lang.Name) -> None:
        found = self.catalog.relations.find(name.text, name.quoted)
        if found is not None:
            raise error("E020", f"there are two relations named {found}", name.span)
        self.catalog.relations.add(name.text, mmpl.Ref(name.text))
        self.catalog.broken = Names({n: None for n in self.catalog.broken if n != name.text})

    # ── views ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def views(self, statements: list[lang.CreateView]) -> None:
        """Each view after those it reads; views in a circle, and those that read them, are broken."""
        by_name: Names[lang.CreateView] = Names()
        for statement in statements:
            name = statement.name
            if by_name.find(name.text, name.quoted) is not None or self.catalog.relations.find(name.text, name.quoted):
                self.problems.append(Diagnostic("E020", f"there are two relations named {name.text}", name.span))
            else:
                by_name.add(name.text, statement)
        reads = {name: _reads(by_name[name], by_name) for name in by_name}
        for name in by_name:
            self.catalog.broken.add(name, None)

        def circle(path: list[str]) -> None:
            message = f"views refer to each other in a circle: {' → '.join(path)}"
            self.problems.append(Diagnostic("E024", message, by_name[path[0]].name.span))

        for name in in_order(reads, circle):
            self.attempt(self.view, by_name[name])

    def view(self, statement: lang.CreateView) -> None:
        rel = translate_query(statement.query, self.catalog)
        rel = name_columns(rel, [n.text for n in statement.columns], self.catalog, statement.name.span)
        heading = self.catalog.headings.of(rel)
        self._declare(statement.name)
        self.catalog.headings.relations[statement.name.text] = heading
        self.view_defs.append(mmpl.ViewDef(statement.name.text, rel, span=statement.span))

    def subscribe(self, statement: lang.Subscribe) -> None:
        for name in statement.names:
            if self.catalog.broken.find(name.text, name.quoted) is not None:
                continue
            found = self.catalog.relations.find(name.text, name.quoted)
            if found is None:
                hint = nearest(name.text, self.catalog.relations)
                self.problems += error("E021", f"there is no view {name.text}", name.span, hint).diagnostics
            else:
                self.subscriptions[found] = None


def _predicates(node: exp.Expr, columns: dict[str, DataType]) -> list[mmpl.Expr]:
    """A CHECK as predicates over a stream's or a domain's own columns."""
    if node.find(exp.Query) is not None:
        raise error("E047", "a CHECK sees one event only: it cannot have a subquery", span_of(node))
    scope = Scope([Item("", {c: c for c in columns})])
    return mmpl.conjuncts(Expressions(scope, lambda name, _: columns[name]).predicate(node))


def _reads(statement: lang.CreateView, views: Names[lang.CreateView]) -> list[str]:
    """The views that a view names; a common table expression of the same name hides one."""
    hidden = Names({c.alias: None for c in statement.query.find_all(exp.CTE)})
    found = []
    for table in statement.query.find_all(exp.Table):
        quoted = bool(table.this.args.get("quoted"))
        name = views.find(table.name, quoted)
        if name is not None and hidden.find(table.name, quoted) is None:
            found.append(name)
    return found
