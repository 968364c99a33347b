"""Checks an import against the definition of its relation."""

from collections.abc import Iterator

from smile.algebra import mmpl, trees
from smile.algebra.arrow_types import stream_types
from smile.algebra.functions.catalogue import expect_type
from smile.algebra.types import BOOL
from smile.analysis.type_analysis import TypeAnalysis
from smile.errors import Diagnostic, did_you_mean, error
from smile.knowledge.aggregate_types import membership
from smile.knowledge.implied_values import narrow_sets


def check_import(import_: mmpl.ImportDef) -> None:
    """Raises an error if a resolved import is not valid."""
    assert import_.definition is not None
    _check_brokers(import_)
    analysis = TypeAnalysis(import_.definition)
    if import_.condition is not None:
        _check_condition(import_.condition, import_, analysis)
    if _has_hideable_single_members(mmpl.RelationRef(import_.relation), analysis) and import_.condition is None:
        message = f"{import_.relation} cannot be imported: each of its groups has a single row, which can be hidden"
        hint = "Import the relation that it groups, and group it here."
        raise error("E048", message, import_.span, hint)


def _check_brokers(import_: mmpl.ImportDef) -> None:
    """Events of a stream are the same wherever they come from. The rows of a view are those at horizons of its
    broker."""
    if len(set(import_.brokers)) < len(import_.brokers):
        repeated = next(b for b in import_.brokers if import_.brokers.count(b) > 1)
        raise error("E020", f"{repeated} is named twice", import_.span)
    if import_.other_brokers and import_.stream is None:
        hint = "Import it from one of them, or import the streams that it is computed from, and define the view here."
        raise error("E048", f"{import_.relation} is a view, so it comes from one broker", import_.span, hint)


def _check_condition(condition: mmpl.Expr, import_: mmpl.ImportDef, analysis: TypeAnalysis) -> None:
    type_ = analysis.relations[import_.relation]
    for name in sorted(trees.columns_in(condition)):
        if name not in type_.heading.visible:
            hint = did_you_mean(name, type_.heading.visible)
            raise error("E022", f"{import_.relation} has no column {name}", condition.span or import_.span, hint)
        if type_.columns[name].evolves:
            fixed = [c for c in type_.heading.visible if not type_.columns[c].evolves]
            hint = f"These never change: {', '.join(fixed)}. " if fixed else ""
            message = f"{import_.relation}.{name} may change, so it cannot decide which rows are imported"
            raise error("E048", message, condition.span or import_.span, f"{hint}Restrict the others in a view.")
    expect_type(condition, BOOL, type_.heading.columns)
    stream = import_.stream
    if stream is not None:
        # A check passes where it is NULL. The condition is the last one, and must be true.
        types, (*checks, _) = stream_types(stream), stream.checks
        sets = narrow_sets({}, trees.conjunction(checks), types, or_null=True) if checks else {}
        if sets is None or narrow_sets(sets, condition, types) is None:
            message = f"no event of {import_.relation} satisfies the condition: its checks exclude it"
            raise error("E048", message, condition.span or import_.span)


def _has_hideable_single_members(rel: mmpl.Rel, analysis: TypeAnalysis) -> bool:
    """Whether the relation is total, and has groups of a single member that can be hidden. Such a group knows more than
    an absent one, even while it is hidden. But a hidden row is not imported."""
    if not analysis.relation_type(rel).heading.total:
        return False
    if isinstance(rel, mmpl.RelationRef) and rel.name in analysis.bodies:
        return _has_hideable_single_members(analysis.bodies[rel.name], analysis)
    if isinstance(rel, mmpl.Summarize):
        source = analysis.relation_type(rel.input)
        return membership(source, rel.per).is_single and not source.never_leaves
    return any(_has_hideable_single_members(source, analysis) for source in trees.inputs_of(rel))


def find_name_clashes(program: mmpl.Program) -> Iterator[Diagnostic]:
    """Relations whose names are needed for the log of an import."""
    names = {definition.name: definition for definition in program.definitions}
    for import_ in program.imports:
        for stream in import_.log_streams:
            clash = names.get(stream.name)
            if clash is not None and clash is not import_:
                message = f"the import {import_.name} needs the name {stream.name} itself"
                yield Diagnostic("E020", message, clash.span, f"Rename {stream.name}, or the import with AS.")
            names[stream.name] = import_
