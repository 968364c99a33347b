"""Filters of subscriptions: a predicate in SmileSQL over the columns of a relation, which may consult tables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from smile.algebra import mmpl
from smile.algebra.heading import Heading
from smile.algebra.printer import print_expression
from smile.algebra.types import TIME
from smile.broker.subscriptions.matching.filter_template import (
    FilterTemplate,
    Parameter,
    TableTest,
    normalize_filter,
)
from smile.broker.subscriptions.matching.table_history import table_columns
from smile.broker.subscriptions.selection import StreamSelection
from smile.broker.views.condition import ViewCondition
from smile.program import compile_filter
from smile.source import Source


@dataclass(frozen=True)
class EventFilter:
    """`template` is shared by all filters that differ only in their constants, which are the `parameters`."""

    template: FilterTemplate
    parameters: tuple[Parameter, ...]

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that it consults, by the names of their streams in the log."""
        return tuple(dict.fromkeys(test.table for test in self.template.tests))

    @cached_property
    def text(self) -> str:
        """What it says, whatever the tables are called here. Equal filters have equal texts."""
        template, tables = self.template, self.tables
        parts = [print_expression(e) for e in (template.predicate, template.residual) if e is not None]
        parts += [f"{print_expression(expr)} IN ${number}" for expr, number in template.memberships]
        parts += [f"{print_expression(expr)} {operator} ${number}" for expr, operator, number in template.ranges]
        parts += [_test_text(test, tables.index(test.table)) for test in template.tests]
        return "\n".join([*parts, *map(_parameter_text, self.parameters)])


EVERY_EVENT = EventFilter(FilterTemplate(None, (), (), (), None, ()), ())


def parse_filter(
    program: mmpl.Program,
    selection: StreamSelection,
    text: str,
    table_names: Mapping[str, str] | None = None,
) -> EventFilter:
    """The filter of a subscription to a selection, under its name in the program. `table_names` are the names of the
    tables that it may consult, with the names of their streams in the program; by default, the streams have the names
    of their tables. Raises the error that says why the text cannot be used."""
    tables = table_streams(program)
    if table_names is not None:
        tables = {name: tables[stream] for name, stream in table_names.items() if stream in tables}
    headings = {
        name: Heading({stream.tick: TIME, **table_columns(stream)}, (stream.tick,), frozenset({stream.tick}))
        for name, stream in tables.items()
    }
    others = [definition.name for definition in program.definitions]
    heading = selection.source.type.heading
    compiled = compile_filter(Source("filter", text), selection.source.name, heading, headings, others)
    behind = {relation: (tables[name].name, table_columns(tables[name])) for relation, name in compiled.tables.items()}
    template, parameters = normalize_filter(compiled.rel, compiled.filtered, heading.columns, behind)
    return EventFilter(template, parameters)


def with_condition(event_filter: EventFilter, condition: ViewCondition, selection: StreamSelection) -> EventFilter:
    """The filter, and the values that columns must have."""
    template, parameters = event_filter.template, list(event_filter.parameters)
    memberships, types = list(template.memberships), list(template.parameter_types)
    predicates = [] if template.predicate is None else [template.predicate]
    for name, value in zip(condition.columns, condition.values, strict=True):
        if value is None:
            predicates.append(mmpl.Call("is null", (mmpl.ColumnRef(name),)))
            continue
        memberships.append((mmpl.ColumnRef(name), len(parameters)))
        parameters.append(frozenset({value}))
        types.append(selection.source.layout.fixed[name])
    predicate = mmpl.Call("and", tuple(predicates)) if len(predicates) > 1 else next(iter(predicates), None)
    changed = replace(template, predicate=predicate, memberships=tuple(memberships), parameter_types=tuple(types))
    return EventFilter(changed, tuple(parameters))


def table_streams(program: mmpl.Program) -> dict[str, mmpl.StreamDef]:
    """The streams of tables' changes, by their names in the program. Their own names are those in the log."""
    streams = {s.name: s for s in program.streams if s.is_table}
    return streams | {i.name: i.stream for i in program.imports if i.stream is not None and i.stream.is_table}


def _test_text(test: TableTest, table: int) -> str:
    pairs = [*zip(test.event_keys, test.row_keys, strict=True), *([] if test.compared is None else [test.compared])]
    parts = [f"{test.kind} {table} {test.result}{' NULL AWARE' if test.compared is not None else ''}"]
    parts += [f"{print_expression(a)} = {print_expression(b)}" for a, b in pairs]
    parts += [
        f"{print_expression(expr)} IN ${number}"
        for expr, number in zip(test.parameter_keys, test.parameters, strict=True)
    ]
    parts += [print_expression(e) for e in (test.row_predicate, test.when) if e is not None]
    return ", ".join(parts)


def _parameter_text(parameter: Parameter) -> str:
    return ", ".join(sorted(map(repr, parameter))) if isinstance(parameter, frozenset) else repr(parameter)
