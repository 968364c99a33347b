"""SUMMARIZE: one row per group, with aggregates over its members."""

from collections.abc import Callable
from dataclasses import replace

from smile.algebra import mmpl
from smile.algebra.coercions import interval_text
from smile.algebra.heading import ColumnNames, Heading, check_columns_exist, check_comparable, check_unique
from smile.knowledge.aggregate_types import group_closing_seals, grouped_sessions, membership
from smile.knowledge.state_retention import StateRetention, format_columns, has_open_seal, seal_condition
from smile.knowledge.types import RelationType
from smile.knowledge.value_seals import VALUE, passed_value
from smile.operators.aggregates import aggregate_bottoms, aggregate_column_type, aggregate_type, map_arguments
from smile.operators.grouping import GroupingOperator, group_state, group_type, key_columns
from smile.operators.operator import BottomRow, BottomRowLookup, HeadingLookup, StateLookup, TypeLookup


class SummarizeOperator(GroupingOperator[mmpl.Summarize]):
    def heading(self, rel: mmpl.Summarize, lookup: HeadingLookup) -> Heading:
        heading = lookup.heading_of(rel.input)
        check_columns_exist(rel.per, heading, rel.span)
        check_comparable(rel.per, heading, rel.span)
        check_unique((*rel.per, *(name for name, _ in rel.aggregates)), rel.span)
        columns = {c: heading.columns[c] for c in rel.per}
        columns |= {name: aggregate_type(a, heading, rel.span) for name, a in rel.aggregates}
        tick = heading.tick if set(heading.tick) <= set(rel.per) else ()
        return Heading(columns, rel.per, tick=tick, total=True)

    def relation_type(self, rel: mmpl.Summarize, lookup: TypeLookup) -> RelationType:
        source = lookup.relation_type(rel.input)
        group = membership(source, rel.per)
        columns = key_columns(source, rel.per)
        columns |= {n: aggregate_column_type(a, source, group) for n, a in rel.aggregates}
        return group_type(rel, rel.per, columns, lookup)

    def bottom_row(self, rel: mmpl.Summarize, lookup: BottomRowLookup) -> BottomRow:
        source = lookup.bottom_row(rel.input)
        return {c: source[c] for c in rel.per} | aggregate_bottoms(rel, lookup)

    def narrow_shown_row(self, rel: mmpl.Summarize, row: BottomRow, lookup: BottomRowLookup) -> BottomRow:
        """A group is shown while it has a member. Without grouping, the row is shown even if there is none."""
        return row | aggregate_bottoms(rel, lookup, has_member=True) if rel.per else row

    def map_expressions(self, rel: mmpl.Summarize, change: Callable[[mmpl.Expr], mmpl.Expr]) -> mmpl.Summarize:
        return replace(rel, aggregates=map_arguments(rel.aggregates, change))

    def early_finals(self, rel: mmpl.Summarize, lookup: TypeLookup) -> list[str]:
        source, group_seals = lookup.relation_type(rel.input), lookup.relation_type(rel).seals
        closing_seals = group_closing_seals(source, rel.per)
        early_finals = []
        if has_open_seal(group_seals) and membership(source, rel.per).is_single:
            is_fixed = not any(c.evolves for c in lookup.relation_type(rel).columns.values())
            when = "at once" if is_fixed and source.never_leaves else "with its member"
            early_finals = [f"the row {when}: there is no second one with its {format_columns(rel.per)}"]
        elif (sessions := grouped_sessions(source, rel.per)) is not None:
            early_finals = [
                f"the row once no other row follows within {interval_text(sessions.gap)} after its last one"
            ]
        elif has_open_seal(group_seals) and not has_open_seal(closing_seals):
            early_finals = [f"the row once {seal_condition(closing_seals)}"]
        for name, call in rel.aggregates:
            deciding = passed_value(call, source)
            if deciding is not None:
                # For MIN this is one tick later than necessary, which is easier to read.
                late = 1 if call.function == "min" else 0
                value = name if call.function == "min" else f"the tick of {name}"
                seals = {
                    s: deciding.seals[s].delay(late).rename({VALUE: value}) if seal.is_never else seal
                    for s, seal in group_seals.items()
                }
                early_finals.append(f"{name} once {seal_condition(seals)}")
        return early_finals

    def state(self, rel: mmpl.Summarize, lookup: StateLookup) -> list[StateRetention]:
        *names, last = [name for name, _ in rel.aggregates]
        description = f"{', '.join(names)} and {last}" if names else last
        return group_state(rel, rel.per, rel.aggregates, description, lookup)

    def partition_columns(self, rel: mmpl.Summarize, heading: Heading) -> list[ColumnNames]:
        return [(c,) for c in rel.per]
