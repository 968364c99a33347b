"""Translates statements to an MMPL program. Domains become checks, and views are ordered by dependency."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from sqlglot import exp

from smile import lang
from smile.algebra import mmpl, trees
from smile.algebra.dependencies import topological_order
from smile.algebra.heading import Heading, stream_heading
from smile.algebra.types import INT, STRING, TIME, DataType
from smile.analysis.check import check_depth, check_operator_count, check_stream_options, check_table_stream
from smile.analysis.global_streams import (
    ALWAYS,
    check_advertisement,
    check_history,
    check_republisher,
    describe_columns,
    global_import,
    latest_name,
    latest_view,
)
from smile.analysis.headings import Headings, exporting_headings
from smile.analysis.imports import check_import, find_name_clashes
from smile.analysis.recorded_types import RecordedTypes, resolve_import
from smile.analysis.type_analysis import TypeAnalysis
from smile.errors import Diagnostic, SmileError, did_you_mean, error
from smile.lang import span_of
from smile.source import Span
from smile.translate.expressions import interval_ticks
from smile.translate.filters import translate_condition
from smile.translate.imported_tables import has_table, imported_table
from smile.translate.pipeline import BrokenDependency, Catalog, KeyedTable
from smile.translate.queries import translate_query
from smile.translate.scope import NameTable, is_match, is_quoted
from smile.translate.tables import column_named, translate_table
from smile.translate.type_names import DECIMAL_SPELLINGS, TYPE_SPELLINGS, parse_type_name, type_hint

VALUE_COLUMN = "VALUE"
_HISTORY_HINT = "Write WITH (HISTORY = INTERVAL '1' HOUR)."


@dataclass(frozen=True)
class _Domain:
    """`checks` are predicates over the column VALUE."""

    type: DataType
    checks: tuple[mmpl.Expr, ...] = ()


_CHANGE = mmpl.ColumnRef(mmpl.CHANGE_COLUMN)
_CHANGE_CHECKS = (
    mmpl.Call("is not null", (_CHANGE,)),
    mmpl.Call("or", tuple(mmpl.Call("=", (_CHANGE, mmpl.Constant(c, STRING))) for c in ("insert", "delete"))),
)
"""What is true of every change of a table."""

_UUID_PATTERN = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
"""In one spelling, so that equal identifiers are equal strings."""
_UUID = _Domain(
    STRING, (mmpl.Call("regexp_like", (mmpl.ColumnRef(VALUE_COLUMN), mmpl.Constant(_UUID_PATTERN, STRING))),)
)
_NON_NEGATIVE_INT = _Domain(INT, (mmpl.Call(">=", (mmpl.ColumnRef(VALUE_COLUMN), mmpl.Constant(0, INT))),))
PREDEFINED_DOMAINS = {
    "shares": _NON_NEGATIVE_INT,
    "centspershare": _NON_NEGATIVE_INT,
    "centspersshare": _NON_NEGATIVE_INT,
    "uuid": _UUID,
}
"""The domains of the program in the paper, and uuid. A program may redefine them."""


class TranslatedProgram(NamedTuple):
    """`tables` has the rows of each table with a primary key, also of an imported one."""

    program: mmpl.Program
    problems: list[Diagnostic]
    tables: Mapping[str, mmpl.Rel]


def translate(
    statements: Sequence[lang.Statement],
    unparsed_names: Iterable[str] = (),
    recorded: RecordedTypes = MappingProxyType({}),
) -> TranslatedProgram:
    """The valid part of the program, its tables, and the errors.

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
        elif isinstance(statement, lang.CreateTable):
            translation.add_table(statement)
    for statement in statements:
        if isinstance(statement, lang.AdvertiseProducer) and statement.stream is not None:
            translation.declare_global(statement.stream)
    for statement in statements:
        if isinstance(statement, lang.CreateRepublisher):
            translation.add_republisher(statement)
        elif isinstance(statement, lang.AdvertiseProducer):
            translation.add_advertisement(statement)
    translation.add_views([s for s in statements if isinstance(s, lang.CreateView)])
    for statement in statements:
        if isinstance(statement, lang.Subscribe):
            translation.add_subscriptions(statement)
    translation.subscribe_latest_views()
    program = translation.program()
    tables = {table.name: table.contents for table in translation.catalog.tables.values()}
    return TranslatedProgram(program, [*translation.problems, *find_name_clashes(program)], tables)


class _ProgramTranslation:
    """`broken` are the names of relations and domains whose errors have already been reported."""

    def __init__(self, unparsed_names: Iterable[str]) -> None:
        self.problems: list[Diagnostic] = []
        self.domains: NameTable[_Domain] = NameTable()
        self.streams: list[mmpl.StreamDef] = []
        self.view_defs: list[mmpl.ViewDef] = []
        self.subscriptions: dict[str, None] = {}
        self.imports: list[mmpl.ImportDef] = []
        self.advertisements: dict[str, mmpl.Advertisement] = {}
        self.histories: list[mmpl.RepublisherHistory] = []
        self.broken: NameTable[None] = NameTable(dict.fromkeys(unparsed_names))
        self.catalog = Catalog(NameTable(), Headings(), self.broken, types=self._current_types)
        self.types = TypeAnalysis(self.program(), self.catalog.headings)

    def program(self) -> mmpl.Program:
        views, subscriptions = tuple(self.view_defs), tuple(self.subscriptions)
        producers, histories = tuple(self.advertisements.values()), tuple(self.histories)
        return mmpl.Program(tuple(self.streams), views, subscriptions, tuple(self.imports), producers, histories)

    def _current_types(self) -> TypeAnalysis:
        self.types.add_definitions(self.program())
        return self.types

    @contextmanager
    def _report_errors(self, name: lang.Name, span: Span) -> Iterator[None]:
        """Collects the errors of one definition and marks it as broken."""
        try:
            yield
            return
        except SmileError as problem:
            self.problems += problem.diagnostics
        except RecursionError:
            hint = "Put parentheses around parts of a long sum: (a + b + …) + (c + d + …). Or define parts as views."
            self.problems.append(Diagnostic("E012", "this statement is nested too deeply", span, hint))
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
            if has_table(import_):
                self._add_imported_table(import_, statement)
                return
            heading = exporting_headings(import_).relations[relation]
            if statement.condition is not None:
                columns = {c: t for c, t in heading.columns.items() if c in heading.visible}
                predicates = translate_condition(statement.condition, columns)
                import_ = replace(import_, condition=trees.conjunction(predicates))
            check_import(import_)
            self.imports.append(import_)
            self._declare(
                replace(statement.name, text=name), exporting_headings(import_).relations[import_.relation_name]
            )

    def _add_imported_table(self, import_: mmpl.ImportDef, statement: lang.ImportRelation) -> None:
        import_, table = imported_table(import_, statement.condition)
        if table.stream is not None:
            check_import(import_)
            self.imports.append(import_)
        self._declare_table(replace(statement.name, text=import_.name), table)

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
                checks += translate_condition(statement.check, {VALUE_COLUMN: base.type})
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
        hint = type_hint(written, (*self.domains, *PREDEFINED_DOMAINS, *TYPE_SPELLINGS, *DECIMAL_SPELLINGS))
        raise error("E025", f"there is no type or domain {written}", span, hint)

    def add_stream(self, statement: lang.CreateStream) -> None:
        with self._report_errors(statement.name, statement.span):
            self._refuse_duplicate(statement.name)
            stream = self._define_stream(statement)
            self.streams.append(stream)
            self._declare(statement.name, stream_heading(stream))

    def _define_stream(self, statement: lang.CreateStream) -> mmpl.StreamDef:
        columns, checks = self._columns_and_checks(
            (statement.tick, *statement.columns), statement.checks, statement.tick
        )
        tick = statement.tick.name.text
        value_columns = tuple((n, t) for n, t in columns.items() if n != tick)
        if statement.is_table and columns.get(mmpl.CHANGE_COLUMN) == STRING:
            checks += _CHANGE_CHECKS
        unique_checks = tuple(dict.fromkeys(checks))
        stream = mmpl.StreamDef(
            statement.name.text, tick, value_columns, unique_checks, statement.publisher_timed,
            unique=_unique_columns(statement, columns), many_origins=statement.many_origins_span is not None,
            home=None if statement.home is None else statement.home.text, is_table=statement.is_table,
            channel=None if statement.channel is None else tuple(c.text for c in statement.channel),
            span=statement.span,
        )  # fmt: skip
        check_stream_options(stream, statement.many_origins_span)
        check_table_stream(stream)
        check_depth(stream)
        return stream

    def add_table(self, statement: lang.CreateTable) -> None:
        with self._report_errors(statement.name, statement.span):
            self._refuse_duplicate(statement.name)
            columns, checks = self._columns_and_checks(statement.columns, statement.checks)
            table = translate_table(statement, columns, tuple(checks))
            if table.stream is not None:
                check_depth(table.stream)
                self.streams.append(table.stream)
            self._declare_table(statement.name, table)

    def _declare_table(self, name: lang.Name, table: KeyedTable) -> None:
        if table.stream is not None:
            self.catalog.headings.relations[table.name] = stream_heading(table.stream)
        self.catalog.headings.heading_of(table.contents)
        self.catalog.relations.add(table.name, table.contents, name.quoted)
        self.catalog.tables[table.contents] = table

    # ── the registry ────────────────────────────────────────────────────────────────────────────────────────────────

    def _find_global(self, name: lang.Name) -> mmpl.StreamDef:
        relation = self.catalog.relations.find(name.text, name.quoted)
        found = next((s for s in self.streams if s.name == relation and s.is_global), None)
        if found is not None:
            return found
        if relation is None and self.broken.find(name.text, name.quoted) is not None:
            raise BrokenDependency
        hint = f"Declare it: CREATE GLOBAL STREAM {name} (t: time, key: string -> measurement: int)."
        raise error("E180", f"{name} is not a global stream", name.span, hint)

    def declare_global(self, statement: lang.CreateStream) -> None:
        """The columns of an advertisement. They declare the global stream, or repeat how it is declared."""
        relation = self.catalog.relations.find(statement.name.text, statement.name.quoted)
        known = next((s for s in self.streams if s.name == relation and s.is_global), None)
        if known is None:
            self.add_stream(statement)
            return
        with self._report_errors(statement.name, statement.span):
            if replace(self._define_stream(statement), name=known.name, span=None) != replace(known, span=None):
                hint = f"It is declared as {describe_columns(known)}. Write the same columns, or none."
                raise error("E189", f"{known.name} is declared with other columns", statement.name.span, hint)

    def add_republisher(self, statement: lang.CreateRepublisher) -> None:
        with self._report_errors(statement.name, statement.span):
            self._refuse_duplicate(statement.name)
            import_ = global_import(self._find_global(statement.relation), statement.name.text)
            condition = self._registry_condition(statement.relation, statement.condition)
            import_ = replace(import_, condition=condition, span=statement.span)
            check_import(import_)
            check_republisher(import_, self._find_global(statement.relation))
            history = None if statement.history is None else interval_ticks(statement.history, _HISTORY_HINT)
            self.imports.append(import_)
            self._declare(statement.name, exporting_headings(import_).relations[import_.relation])
            if history is not None and statement.history is not None:
                kept = mmpl.RepublisherHistory(import_.name, history, span=span_of(statement.history) or statement.span)
                check_history(kept)
                self.histories.append(kept)
            self._add_latest_view(import_, statement)

    def _add_latest_view(self, import_: mmpl.ImportDef, statement: lang.CreateRepublisher) -> None:
        view = latest_view(import_)
        name = replace(statement.name, text=view.name)
        self._refuse_duplicate(name)
        self.view_defs.append(view)
        self._declare(name, self.catalog.headings.heading_of(view.body))

    def add_advertisement(self, statement: lang.AdvertiseProducer) -> None:
        with self._report_errors(statement.relation, statement.span):
            stream = self._find_global(statement.relation)
            alias = f"{stream.name}{len(self.advertisements) + 1}"
            name = alias if statement.alias is None else statement.alias.text
            if name in self.advertisements:
                raise error("E020", f"there are two producers named {name}", statement.span)
            self._refuse_duplicate(replace(statement.relation, text=name, quoted=True))
            condition = self._registry_condition(statement.relation, statement.condition)
            advertised = mmpl.Advertisement(name, stream.name, condition or ALWAYS, span=statement.span)
            check_advertisement(advertised, stream)
            self.advertisements[name] = advertised

    def _registry_condition(self, relation: lang.Name, condition: exp.Expr | None) -> mmpl.Expr | None:
        if condition is None:
            return None
        stream = self._find_global(relation)
        return trees.conjunction(translate_condition(condition, dict(stream_heading(stream).columns)))

    def _columns_and_checks(
        self,
        declarations: Sequence[lang.ColumnDecl],
        own_checks: Sequence[exp.Expr],
        tick: lang.ColumnDecl | None = None,
    ) -> tuple[dict[str, DataType], list[mmpl.Expr]]:
        """The columns and checks of a stream or table. Raises all errors in them."""
        problems: list[Diagnostic] = []
        columns: dict[str, DataType] = {}
        checks: list[mmpl.Expr] = []
        declared: NameTable[None] = NameTable()
        for column in declarations:
            name = column.name
            try:
                if declared.clash(name.text, name.quoted) is not None:
                    raise error("E020", f"there are two columns named {name.text}", name.span)
                declared.add(name.text, None, name.quoted)
                domain = self._resolve_type(column.type_name, column.type_span)
                if column is tick and domain.type != TIME:
                    message = f"the key of a stream is a time, but {name.text} is {domain.type}"
                    raise error("E040", message, column.type_span, f"Write {name.text}: time.")
                columns[name.text] = domain.type
                if column.not_null and column is not tick:
                    checks.append(mmpl.Call("is not null", (mmpl.ColumnRef(name.text),), span=column.span))
                checks += [trees.rename_columns(check, {VALUE_COLUMN: name.text}) for check in domain.checks]
            except SmileError as problem:
                problems += problem.diagnostics
        check_nodes = (*(c for d in declarations for c in d.checks), *own_checks)
        for node in check_nodes if not problems else ():
            try:
                checks += translate_condition(node, columns)
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

    def subscribe_latest_views(self) -> None:
        """The latest state of republishers is always maintained. Without SUBSCRIBE, all views are."""
        if self.subscriptions:
            names = [latest_name(i.name) for i in self.imports if i.is_global]
            self.subscriptions |= dict.fromkeys(names)

    def add_subscriptions(self, statement: lang.Subscribe) -> None:
        for name in statement.names:
            relation_name = self.catalog.relations.find(name.text, name.quoted)
            if any(stream.name == relation_name and stream.is_global for stream in self.streams):
                advice = f"Define a view of it: CREATE VIEW v AS SELECT * FROM {name}; SUBSCRIBE v."
                problem = "a global stream is read through views"
                self.problems.append(Diagnostic("E180", problem, name.span, advice))
            elif relation_name is not None and self.catalog.relations[relation_name] in self.catalog.tables:
                advice = f"Define a view of it: CREATE VIEW v AS SELECT * FROM {name}; SUBSCRIBE v."
                self.problems.append(Diagnostic("E210", "a table is read through views", name.span, advice))
            elif relation_name is not None:
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
    unique = [tuple(column_named(name, columns) for name in names) for names in (*single, *statement.unique)]
    for names, written in zip(unique, (*single, *statement.unique), strict=True):
        if statement.tick.name.text in names:
            hint = "No two events of a stream have the same tick."
            raise error("E013", "UNIQUE is not supported with the tick", written[0].span, hint)
        if len(set(names)) < len(names):
            raise error("E020", "a column is twice in UNIQUE", written[0].span)
    return tuple(dict.fromkeys(unique))


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
