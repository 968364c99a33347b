"""Translates statements to an MMPL program. Domains become checks, and views are ordered by dependency."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType

from sqlglot import exp

from smile import lang
from smile.algebra import mmpl, trees
from smile.algebra.dependencies import topological_order
from smile.algebra.heading import Heading, stream_heading
from smile.algebra.types import INT, TIME, DataType
from smile.analysis.check import check_depth, check_operator_count, check_stream_options
from smile.analysis.headings import Headings, exporting_headings
from smile.analysis.imports import check_import, find_name_clashes
from smile.analysis.recorded_types import RecordedTypes, resolve_import
from smile.errors import Diagnostic, SmileError, did_you_mean, error
from smile.lang import span_of
from smile.source import Span
from smile.translate.expressions import ExpressionTranslator
from smile.translate.pipeline import BrokenDependency, Catalog
from smile.translate.queries import translate_query
from smile.translate.scope import FromItem, NameTable, Scope, is_match, is_quoted
from smile.translate.type_names import DECIMAL_SPELLINGS, TYPE_SPELLINGS, parse_type_name

VALUE_COLUMN = "VALUE"


@dataclass(frozen=True)
class _Domain:
    """`checks` are predicates over the column VALUE."""

    type: DataType
    checks: tuple[mmpl.Expr, ...] = ()


_NON_NEGATIVE_INT = _Domain(INT, (mmpl.Call(">=", (mmpl.ColumnRef(VALUE_COLUMN), mmpl.Constant(0, INT))),))
PREDEFINED_DOMAINS = {
    "shares": _NON_NEGATIVE_INT,
    "centspershare": _NON_NEGATIVE_INT,
    "centspersshare": _NON_NEGATIVE_INT,
}
"""The domains of the program in the paper. A program may redefine them."""


def translate(
    statements: Sequence[lang.Statement],
    unparsed_names: Iterable[str] = (),
    recorded: RecordedTypes = MappingProxyType({}),
) -> tuple[mmpl.Program, list[Diagnostic]]:
    """The valid part of the program, and the errors.

    `unparsed_names` are names that statements with syntax errors would define. Uses of them give no further errors.
    `recorded` has the types of the relations that the program imports.
    """
    translation = _ProgramTranslation(unparsed_names)
    translation.add_domains([s for s in statements if isinstance(s, lang.CreateDomain)])
    for statement in statements:
        if isinstance(statement, lang.ImportRelation):
            translation.add_import(statement, recorded)
    for statement in statements:
        if isinstance(statement, lang.CreateStream):
            translation.add_stream(statement)
    translation.add_views([s for s in statements if isinstance(s, lang.CreateView)])
    for statement in statements:
        if isinstance(statement, lang.Subscribe):
            translation.add_subscriptions(statement)
    program = translation.program()
    return program, [*translation.problems, *find_name_clashes(program)]


class _ProgramTranslation:
    """`broken` are the names of relations and domains whose errors have already been reported."""

    def __init__(self, unparsed_names: Iterable[str]) -> None:
        self.problems: list[Diagnostic] = []
        self.domains: NameTable[_Domain] = NameTable()
        self.streams: list[mmpl.StreamDef] = []
        self.view_defs: list[mmpl.ViewDef] = []
        self.subscriptions: dict[str, None] = {}
        self.imports: list[mmpl.ImportDef] = []
        self.broken: NameTable[None] = NameTable(dict.fromkeys(unparsed_names))
        self.catalog = Catalog(NameTable(), Headings(), self.broken)

    def program(self) -> mmpl.Program:
        views, subscriptions = tuple(self.view_defs), tuple(self.subscriptions)
        return mmpl.Program(tuple(self.streams), views, subscriptions, tuple(self.imports))

    @contextmanager
    def _report_errors(self, name: lang.Name, span: Span) -> Iterator[None]:
        """Collects the errors of one definition and marks it as broken."""
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

    # ── imports ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def add_import(self, statement: lang.ImportRelation, recorded: RecordedTypes) -> None:
        with self._report_errors(statement.name, statement.span):
            self._refuse_duplicate(statement.name)
            brokers = [_recorded_name(broker, recorded) for broker in (statement.broker, *statement.other_brokers)]
            relations = {relation: None for broker in brokers for relation in recorded.get(broker, {})}
            relation = _recorded_name(statement.relation, relations)
            name = relation if statement.alias is None else statement.alias.text
            unresolved = mmpl.ImportDef(
                name, brokers[0], relation, other_brokers=tuple(brokers[1:]), span=statement.span
            )
            import_ = resolve_import(unresolved, recorded)
            heading = exporting_headings(import_).relations[relation]
            if statement.condition is not None:
                columns = {c: t for c, t in heading.columns.items() if c in heading.visible}
                predicates = _translate_check(statement.condition, columns)
                import_ = replace(import_, condition=trees.conjunction(predicates))
            check_import(import_)
            self.imports.append(import_)
            self._declare(
                replace(statement.name, text=name), exporting_headings(import_).relations[import_.relation_name]
            )

    def _refuse_duplicate(self, name: lang.Name) -> None:
        existing = self.catalog.relations.clash(name.text, name.quoted)
        if existing is not None:
            raise error("E020", f"there are two relations named {existing}", name.span)

    # ── domains and streams ─────────────────────────────────────────────────────────────────────────────────────────

    def add_domains(self, statements: list[lang.CreateDomain]) -> None:
        """Adds each domain after its base. In `CREATE DOMAIN d AS d`, the base is a type or a predefined domain."""
        by_name: NameTable[lang.CreateDomain] = NameTable()
        for statement in statements:
            name = statement.name
            if by_name.clash(name.text, name.quoted) is not None:
                self.problems.append(Diagnostic("E020", f"there are two domains named {name.text}", name.span))
            else:
                by_name.add(name.text, statement, name.quoted)
        bases = {name: by_name.find(*_unquote_type_name(by_name[name].base)) for name in by_name}
        reads = {name: [base] if base is not None and base != name else [] for name, base in bases.items()}

        def report_cycle(path: list[str]) -> None:
            message = f"domains refer to each other in a circle: {' → '.join(path)}"
            self.problems.append(Diagnostic("E025", message, by_name[path[0]].name.span))
            for domain in path:
                self.broken.add(domain, None)

        for domain in topological_order(reads, report_cycle):
            if self.broken.find(domain, quoted=True) is None:
                self._add_domain(by_name[domain])

    def _add_domain(self, statement: lang.CreateDomain) -> None:
        name = statement.name
        with self._report_errors(name, statement.span):
            base = self._resolve_type(statement.base, statement.base_span)
            checks = list(base.checks)
            if statement.not_null:
                checks.append(mmpl.Call("is not null", (mmpl.ColumnRef(VALUE_COLUMN),), span=statement.span))
            if statement.check is not None:
                checks += _translate_check(statement.check, {VALUE_COLUMN: base.type})
            self.domains.add(name.text, _Domain(base.type, tuple(checks)), name.quoted)

    def _resolve_type(self, text: str, span: Span) -> _Domain:
        written, quoted = _unquote_type_name(text)
        domain_name = self.domains.find(written, quoted)
        if domain_name is not None:
            return self.domains[domain_name]
        if self.broken.find(written, quoted) is not None:
            raise BrokenDependency
        parsed = None if quoted else parse_type_name(text, span)
        if parsed is not None:
            type, length = parsed
            if length is None:
                return _Domain(type)
            length_call = mmpl.Call("length", (mmpl.ColumnRef(VALUE_COLUMN),))
            return _Domain(type, (mmpl.Call("<=", (length_call, mmpl.Constant(length, INT))),))
        if not quoted and text.casefold() in PREDEFINED_DOMAINS:
            return PREDEFINED_DOMAINS[text.casefold()]
        hint = did_you_mean(written, (*self.domains, *PREDEFINED_DOMAINS, *TYPE_SPELLINGS, *DECIMAL_SPELLINGS))
        raise error("E025", f"there is no type or domain {written}", span, hint)

    def add_stream(self, statement: lang.CreateStream) -> None:
        with self._report_errors(statement.name, statement.span):
            self._refuse_duplicate(statement.name)
            columns, checks = self._columns_and_checks(statement)
            tick = statement.tick.name.text
            value_columns = tuple((n, t) for n, t in columns.items() if n != tick)
            unique_checks = tuple(dict.fromkeys(checks))
            publisher_timed = statement.publisher_timed
            stream = mmpl.StreamDef(
                statement.name.text, tick, value_columns, unique_checks, publisher_timed,
                unique=_unique_columns(statement, columns), many_origins=statement.many_origins_span is not None,
                home=None if statement.home is None else statement.home.text, span=statement.span,
            )  # fmt: skip
            check_stream_options(stream, statement.many_origins_span)
            check_depth(stream)
            self.streams.append(stream)
            self._declare(statement.name, stream_heading(stream))

    def _columns_and_checks(self, statement: lang.CreateStream) -> tuple[dict[str, DataType], list[mmpl.Expr]]:
        """The columns and checks of a stream. Raises all errors in them."""
        problems: list[Diagnostic] = []
        columns: dict[str, DataType] = {}
        checks: list[mmpl.Expr] = []
        declared: NameTable[None] = NameTable()
        for column in (statement.tick, *statement.columns):
            name = column.name
            try:
                if declared.clash(name.text, name.quoted) is not None:
                    raise error("E020", f"there are two columns named {name.text}", name.span)
                declared.add(name.text, None, name.quoted)
                domain = self._resolve_type(column.type_name, column.type_span)
                if column is statement.tick and domain.type != TIME:
                    message = f"the key of a stream is a time, but {name.text} is {domain.type}"
                    raise error("E040", message, column.type_span, f"Write {name.text}: time.")
                columns[name.text] = domain.type
                if column.not_null and column is not statement.tick:
                    checks.append(mmpl.Call("is not null", (mmpl.ColumnRef(name.text),), span=column.span))
                checks += [trees.rename_columns(check, {VALUE_COLUMN: name.text}) for check in domain.checks]
            except SmileError as problem:
                problems += problem.diagnostics
        check_nodes = (*(c for d in (statement.tick, *statement.columns) for c in d.checks), *statement.checks)
        for node in check_nodes if not problems else ():
            try:
                checks += _translate_check(node, columns)
            except SmileError as problem:
                problems += problem.diagnostics
        if problems:
            raise SmileError(problems)
        return columns, checks

    def _declare(self, name: lang.Name, heading: Heading) -> None:
        self.catalog.relations.add(name.text, mmpl.RelationRef(name.text), name.quoted)
        self.catalog.headings.relations[name.text] = heading

    # ── views ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def add_views(self, statements: list[lang.CreateView]) -> None:
        """Adds each view after those that it reads. Views in a cycle, and views that read them, are broken."""
        by_name: NameTable[lang.CreateView] = NameTable()
        for statement in statements:
            name = statement.name
            existing = by_name.clash(name.text, name.quoted) or self.catalog.relations.clash(name.text, name.quoted)
            if existing is not None:
                self.problems.append(Diagnostic("E020", f"there are two relations named {existing}", name.span))
            else:
                by_name.add(name.text, statement, name.quoted)
        reads = {name: _views_read(by_name[name], by_name) for name in by_name}

        def report_cycle(path: list[str]) -> None:
            message = f"views refer to each other in a circle: {' → '.join(path)}"
            self.problems.append(Diagnostic("E024", message, by_name[path[0]].name.span))
            for view in path:
                self.broken.add(view, None)

        for view in topological_order(reads, report_cycle):
            if self.broken.find(view, quoted=True) is None:
                with self._report_errors(by_name[view].name, by_name[view].span):
                    self._add_view(by_name[view])

    def _add_view(self, statement: lang.CreateView) -> None:
        rel = translate_query(statement.query, self.catalog, [n.text for n in statement.columns])
        check_operator_count(rel, statement.span)
        view = mmpl.ViewDef(statement.name.text, rel, span=statement.span)
        check_depth(view)
        heading = self.catalog.headings.heading_of(rel)
        self.view_defs.append(view)
        self._declare(statement.name, heading)

    def add_subscriptions(self, statement: lang.Subscribe) -> None:
        for name in statement.names:
            relation_name = self.catalog.relations.find(name.text, name.quoted)
            if relation_name is not None:
                self.subscriptions[relation_name] = None
            elif self.broken.find(name.text, name.quoted) is None:
                hint = did_you_mean(name.text, self.catalog.relations)
                self.problems.append(Diagnostic("E021", f"there is no view {name.text}", name.span, hint))


def _unquote_type_name(type_name: str) -> tuple[str, bool]:
    """The name of a type without quotes, and whether it was quoted."""
    quoted = type_name.startswith('"')
    return (type_name[1:-1].replace('""', '"') if quoted else type_name), quoted


def _recorded_name(name: lang.Name, recorded: Iterable[str]) -> str:
    """The name as it is recorded; as it is written if it is not recorded."""
    return NameTable(dict.fromkeys(recorded)).find(name.text, name.quoted) or name.text


def _unique_columns(statement: lang.CreateStream, columns: Mapping[str, DataType]) -> tuple[tuple[str, ...], ...]:
    """The columns of each UNIQUE, of a column or of the stream."""
    single = [(column.name,) for column in (statement.tick, *statement.columns) if column.unique]
    unique = [tuple(_column_named(name, columns) for name in names) for names in (*single, *statement.unique)]
    for names, written in zip(unique, (*single, *statement.unique), strict=True):
        if statement.tick.name.text in names:
            hint = "No two events of a stream have the same tick."
            raise error("E013", "UNIQUE is not supported with the tick", written[0].span, hint)
        if len(set(names)) < len(names):
            raise error("E020", "a column is twice in UNIQUE", written[0].span)
    return tuple(dict.fromkeys(unique))


def _column_named(name: lang.Name, columns: Mapping[str, DataType]) -> str:
    matching = [c for c in columns if c == name.text or (not name.quoted and c.casefold() == name.text.casefold())]
    if not matching:
        raise error("E022", f"there is no column {name.text}", name.span, did_you_mean(name.text, columns))
    return matching[0]


def _translate_check(node: exp.Expr, columns: dict[str, DataType]) -> list[mmpl.Expr]:
    """The predicates of a CHECK over the columns of a stream or the value of a domain, or of an import's WHERE."""
    if node.find(exp.Query) is not None:
        message = "a condition on one event or row cannot have a subquery"
        raise error("E047", message, span_of(node))
    scope = Scope([FromItem("", NameTable({c: c for c in columns}))])
    return trees.conjuncts(ExpressionTranslator(scope, lambda name, _: columns[name]).translate_predicate(node))


def _views_read(statement: lang.CreateView, views: NameTable[lang.CreateView]) -> list[str]:
    """The views that a view reads. A name that a common table expression hides does not count."""
    read_views = []
    for table in statement.query.find_all(exp.Table):
        name = views.find(table.name, is_quoted(table))
        if name is not None and not _is_cte_reference(table):
            read_views.append(name)
    return read_views


def _is_cte_reference(table: exp.Table) -> bool:
    """Whether the name is that of an entry of an enclosing WITH, or of an earlier entry of the same WITH."""
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
                if is_match(alias.name, is_quoted(alias), table.name):
                    return True
            skipped = with_
        child, node = node, node.parent
    return False
