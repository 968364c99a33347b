"""Statements to one MMPL program: domains become checks, views are put in the order in which they depend."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlglot import exp

from smile import lang
from smile.algebra import mmpl, trees
from smile.algebra.heading import Heading, Headings, stream_heading
from smile.algebra.order import in_order
from smile.algebra.translate.expressions import Expressions
from smile.algebra.translate.pipeline import BrokenDependency, Catalog
from smile.algebra.translate.queries import translate_query
from smile.algebra.translate.scope import Item, Names, Scope, is_quoted, matches
from smile.algebra.translate.typenames import DECIMALS, SPELLINGS, parse_type_name
from smile.algebra.types import INT, TIME, DataType
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


def translate(
    statements: Sequence[lang.Statement], unread: Iterable[str] = ()
) -> tuple[mmpl.Program, list[Diagnostic]]:
    """The program, as far as it has no errors, and the errors.

    `unread` are the names of statements that could not be read: nothing is said of those, nor of what uses them.
    """
    translation = _Translation(unread)
    translation.domains_of([s for s in statements if isinstance(s, lang.CreateDomain)])
    for statement in statements:
        if isinstance(statement, lang.CreateStream):
            translation.stream(statement)
    translation.views([s for s in statements if isinstance(s, lang.CreateView)])
    for statement in statements:
        if isinstance(statement, lang.Subscribe):
            translation.subscribe(statement)
    return translation.program(), translation.problems


class _Translation:
    """`broken` are names of relations and domains whose errors are reported already."""

    def __init__(self, unread: Iterable[str]) -> None:
        self.problems: list[Diagnostic] = []
        self.domains: Names[_Domain] = Names()
        self.streams: list[mmpl.StreamDef] = []
        self.view_defs: list[mmpl.ViewDef] = []
        self.subscriptions: dict[str, None] = {}
        self.broken: Names[None] = Names(dict.fromkeys(unread))
        self.catalog = Catalog(Names(), Headings(), self.broken)

    def program(self) -> mmpl.Program:
        return mmpl.Program(tuple(self.streams), tuple(self.view_defs), tuple(self.subscriptions))

    @contextmanager
    def _reporting(self, name: lang.Name, span: Span) -> Iterator[None]:
        """Errors of one definition break it, and say no more."""
        try:
            yield
            return
        except SmileError as problem:
            self.problems += problem.diagnostics
        except RecursionError:
            self.problems.append(Diagnostic("E012", "this statement is nested too deeply", span))
        except BrokenDependency:
            pass
        self.broken.add(name.text, None)

    # ── domains and streams ─────────────────────────────────────────────────────────────────────────────────────────

    def domains_of(self, statements: list[lang.CreateDomain]) -> None:
        """Each domain after the one it is based on; `CREATE DOMAIN d AS d` is based on a type, or predefined."""
        by_name: Names[lang.CreateDomain] = Names()
        for statement in statements:
            name = statement.name
            if by_name.clash(name.text, name.quoted) is not None:
                self.problems.append(Diagnostic("E020", f"there are two domains named {name.text}", name.span))
            else:
                by_name.add(name.text, statement, name.quoted)
        bases = {name: by_name.find(*_written(by_name[name].base)) for name in by_name}
        reads = {name: [base] if base is not None and base != name else [] for name, base in bases.items()}

        def circle(path: list[str]) -> None:
            message = f"domains refer to each other in a circle: {' → '.join(path)}"
            self.problems.append(Diagnostic("E025", message, by_name[path[0]].name.span))
            for domain in path:
                self.broken.add(domain, None)

        for domain in in_order(reads, circle):
            if self.broken.find(domain, quoted=True) is None:
                self._domain(by_name[domain])

    def _domain(self, statement: lang.CreateDomain) -> None:
        name = statement.name
        with self._reporting(name, statement.span):
            base = self._type(statement.base, statement.base_span)
            checks = list(base.checks)
            if statement.not_null:
                checks.append(mmpl.Call("is not null", (mmpl.Column(VALUE),), span=statement.span))
            if statement.check is not None:
                checks += _predicates(statement.check, {VALUE: base.type})
            self.domains.add(name.text, _Domain(base.type, tuple(checks)), name.quoted)

    def _type(self, text: str, span: Span) -> _Domain:
        written, quoted = _written(text)
        defined = self.domains.find(written, quoted)
        if defined is not None:
            return self.domains[defined]
        if self.broken.find(written, quoted) is not None:
            raise BrokenDependency
        known = None if quoted else parse_type_name(text, span)
        if known is not None:
            type, length = known
            if length is None:
                return _Domain(type)
            measured = mmpl.Call("length", (mmpl.Column(VALUE),))
            return _Domain(type, (mmpl.Call("<=", (measured, mmpl.Constant(length, INT))),))
        if not quoted and text.casefold() in PREDEFINED:
            return PREDEFINED[text.casefold()]
        hint = nearest(written, (*self.domains, *PREDEFINED, *SPELLINGS, *DECIMALS))
        raise error("E025", f"there is no type or domain {written}", span, hint)

    def stream(self, statement: lang.CreateStream) -> None:
        with self._reporting(statement.name, statement.span):
            found = self.catalog.relations.clash(statement.name.text, statement.name.quoted)
            if found is not None:
                raise error("E020", f"there are two relations named {found}", statement.name.span)
            columns, checks = self._columns(statement)
            tick = statement.tick.name.text
            others = tuple((n, t) for n, t in columns.items() if n != tick)
            unique = tuple(dict.fromkeys(checks))
            timed = statement.publisher_timed
            stream = mmpl.StreamDef(statement.name.text, tick, others, unique, timed, span=statement.span)
            self.streams.append(stream)
            self._declare(statement.name, stream_heading(stream))

    def _columns(self, statement: lang.CreateStream) -> tuple[dict[str, DataType], list[mmpl.Expr]]:
        """The columns and the checks of a stream, or all the errors in them."""
        problems: list[Diagnostic] = []
        columns: dict[str, DataType] = {}
        checks: list[mmpl.Expr] = []
        declared: Names[None] = Names()
        for column in (statement.tick, *statement.columns):
            name = column.name
            try:
                if declared.clash(name.text, name.quoted) is not None:
                    raise error("E020", f"there are two columns named {name.text}", name.span)
                declared.add(name.text, None, name.quoted)
                domain = self._type(column.type_name, column.type_span)
                if column is statement.tick and domain.type != TIME:
                    message = f"the key of a stream is a time, {name.text} is {domain.type}"
                    raise error("E040", message, column.type_span, f"Write {name.text}: time.")
                columns[name.text] = domain.type
                if column.not_null and column is not statement.tick:
                    checks.append(mmpl.Call("is not null", (mmpl.Column(name.text),), span=column.span))
                checks += [trees.rename_columns(check, {VALUE: name.text}) for check in domain.checks]
            except SmileError as problem:
                problems += problem.diagnostics
        written = (*(c for d in (statement.tick, *statement.columns) for c in d.checks), *statement.checks)
        for node in written if not problems else ():
            try:
                checks += _predicates(node, columns)
            except SmileError as problem:
                problems += problem.diagnostics
        if problems:
            raise SmileError(problems)
        return columns, checks

    def _declare(self, name: lang.Name, heading: Heading) -> None:
        self.catalog.relations.add(name.text, mmpl.Ref(name.text), name.quoted)
        self.catalog.headings.relations[name.text] = heading

    # ── views ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def views(self, statements: list[lang.CreateView]) -> None:
        """Each view after those it reads; views in a circle, and those that read them, are broken."""
        by_name: Names[lang.CreateView] = Names()
        for statement in statements:
            name = statement.name
            found = by_name.clash(name.text, name.quoted) or self.catalog.relations.clash(name.text, name.quoted)
            if found is not None:
                self.problems.append(Diagnostic("E020", f"there are two relations named {found}", name.span))
            else:
                by_name.add(name.text, statement, name.quoted)
        reads = {name: _reads(by_name[name], by_name) for name in by_name}

        def circle(path: list[str]) -> None:
            message = f"views refer to each other in a circle: {' → '.join(path)}"
            self.problems.append(Diagnostic("E024", message, by_name[path[0]].name.span))
            for view in path:
                self.broken.add(view, None)

        for view in in_order(reads, circle):
            if self.broken.find(view, quoted=True) is None:
                with self._reporting(by_name[view].name, by_name[view].span):
                    self._view(by_name[view])

    def _view(self, statement: lang.CreateView) -> None:
        rel = translate_query(statement.query, self.catalog, [n.text for n in statement.columns])
        heading = self.catalog.headings.of(rel)
        self.view_defs.append(mmpl.ViewDef(statement.name.text, rel, span=statement.span))
        self._declare(statement.name, heading)

    def subscribe(self, statement: lang.Subscribe) -> None:
        for name in statement.names:
            found = self.catalog.relations.find(name.text, name.quoted)
            if found is not None:
                self.subscriptions[found] = None
            elif self.broken.find(name.text, name.quoted) is None:
                hint = nearest(name.text, self.catalog.relations)
                self.problems.append(Diagnostic("E021", f"there is no view {name.text}", name.span, hint))


def _written(type_name: str) -> tuple[str, bool]:
    """A type's name without its quotes, and whether it had any."""
    quoted = type_name.startswith('"')
    return (type_name[1:-1].replace('""', '"') if quoted else type_name), quoted


def _predicates(node: exp.Expr, columns: dict[str, DataType]) -> list[mmpl.Expr]:
    """A CHECK as predicates over a stream's or a domain's own columns."""
    if node.find(exp.Query) is not None:
        raise error("E047", "a CHECK sees one event only: it cannot have a subquery", span_of(node))
    scope = Scope([Item("", Names({c: c for c in columns}))])
    return trees.conjuncts(Expressions(scope, lambda name, _: columns[name]).predicate(node))


def _reads(statement: lang.CreateView, views: Names[lang.CreateView]) -> list[str]:
    """The views that a view names; where a common table expression of the same name is in sight, it is that."""
    found = []
    for table in statement.query.find_all(exp.Table):
        name = views.find(table.name, is_quoted(table))
        if name is not None and not _names_cte(table):
            found.append(name)
    return found


def _names_cte(table: exp.Table) -> bool:
    """Whether a WITH around this place, or an entry before it in the same WITH, has the name."""
    child: exp.Expr = table
    node = table.parent
    skipped: exp.Expr | None = None
    while node is not None:
        with_ = node if isinstance(node, exp.With) else node.args.get("with_")
        if isinstance(with_, exp.With) and with_ is not skipped:
            for cte in with_.expressions:
                if cte is child:
                    break
                alias = cte.args["alias"].this
                if matches(alias.name, is_quoted(alias), table.name):
                    return True
            skipped = with_
        child, node = node, node.parent
    return False
