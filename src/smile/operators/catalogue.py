"""All operators, by the class of their nodes."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from smile.algebra import mmpl
from smile.operators.asof import AsofOperator
from smile.operators.best import BestOperator
from smile.operators.distinct import DistinctOperator
from smile.operators.extend import ExtendOperator
from smile.operators.imported import ImportedOperator
from smile.operators.join.join import JoinOperator
from smile.operators.operator import Operator
from smile.operators.over import OverOperator
from smile.operators.over_rows import OverRowsOperator
from smile.operators.project import ProjectOperator
from smile.operators.relation_ref import RelationRefOperator
from smile.operators.rename import RenameOperator
from smile.operators.restrict import RestrictOperator
from smile.operators.session import SessionOperator
from smile.operators.silence import SilenceOperator
from smile.operators.summarize import SummarizeOperator
from smile.operators.ungroup import UngroupOperator
from smile.operators.union import MergeOperator, UnionOperator
from smile.operators.values import ValuesOperator
from smile.operators.window import WindowOperator

OPERATORS: Final[Mapping[type[mmpl.Rel], Operator[Any]]] = {  # an operator takes only nodes of its class
    mmpl.RelationRef: RelationRefOperator(),
    mmpl.Imported: ImportedOperator(),
    mmpl.Values: ValuesOperator(),
    mmpl.Restrict: RestrictOperator(),
    mmpl.Project: ProjectOperator(),
    mmpl.Extend: ExtendOperator(),
    mmpl.Rename: RenameOperator(),
    mmpl.Join: JoinOperator(),
    mmpl.Asof: AsofOperator(),
    mmpl.Summarize: SummarizeOperator(),
    mmpl.Distinct: DistinctOperator(),
    mmpl.Best: BestOperator(),
    mmpl.Window: WindowOperator(),
    mmpl.Ungroup: UngroupOperator(),
    mmpl.Session: SessionOperator(),
    mmpl.Over: OverOperator(),
    mmpl.OverRows: OverRowsOperator(),
    mmpl.Silence: SilenceOperator(),
    mmpl.Merge: MergeOperator(),
    mmpl.Union: UnionOperator(),
}


def operator_of(rel: mmpl.Rel) -> Operator[Any]:
    return OPERATORS[type(rel)]


def map_expressions(rel: mmpl.Rel, change: Callable[[mmpl.Expr], mmpl.Expr]) -> mmpl.Rel:
    """The operator with `change` applied to each of its scalar expressions."""
    mapped: mmpl.Rel = operator_of(rel).map_expressions(rel, change)
    return mapped
