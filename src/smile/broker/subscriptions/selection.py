"""Selections of a stream: relations whose rows are some events of one stream, with columns that follow from the event
alone. A selection is computed from ranges of the log, with the transforms of the pipeline.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.printer import print_expression
from smile.analysis.type_analysis import TypeAnalysis
from smile.broker.views.condition import ViewCondition
from smile.columns import masks
from smile.columns.values import ValueColumn, true_indices
from smile.engine.local import events_delta
from smile.graph.build import build_graph
from smile.horizons import HORIZON_MIN
from smile.kernels.compile import compile_graph
from smile.kernels.delta import Delta
from smile.kernels.transform import InputRelation, RowWiseTransform

_OPERATORS = (mmpl.Restrict, mmpl.Project, mmpl.Extend, mmpl.Rename)


@dataclass(frozen=True, eq=False)
class StreamSelection:
    """`base` is the stream in the program, and `stream` what the log calls it. `source` has the types of the selected
    rows. `text` says what is selected, in the same words at all brokers that have the stream. `follows_clock`: whether
    ticks are times."""

    base: str
    stream: str
    follows_clock: bool
    source: InputRelation
    text: str
    transforms: Sequence[RowWiseTransform]

    def select(self, events: pa.RecordBatch, condition: ViewCondition) -> Delta:
        """The selected rows of these events, in their order. They have one row for each event at most."""
        delta = events_delta(events, HORIZON_MIN)
        for transform in self.transforms:
            delta = transform.apply(delta)
        is_selected = masks.is_shown(delta.new.mask)
        for name, value in condition.value_columns.items():
            is_selected = is_selected & delta.fixed[name].same(value.take(np.zeros(len(delta), np.int64)))
        return delta if is_selected.all() else delta.take(true_indices(is_selected))

    def ticks(self, rows: Delta) -> ValueColumn:
        """The ticks of selected rows."""
        return rows.fixed[self.source.layout.key[0]]


def find_selection(program: mmpl.Program, relation: str) -> StreamSelection | None:
    """None if the relation is not a selection of a stream."""
    streams = {s.name: s for s in program.streams} | {i.name: i.stream for i in program.imports if i.stream is not None}
    bodies = {view.name: view.body for view in program.views}
    operators = list[mmpl.Rel]()
    rel: mmpl.Rel = mmpl.RelationRef(relation)
    while not (isinstance(rel, mmpl.RelationRef) and rel.name in streams):
        if isinstance(rel, mmpl.RelationRef) and rel.name in bodies:
            rel = bodies[rel.name]
        elif isinstance(rel, _OPERATORS):
            operators.append(rel)
            rel = rel.input
        else:
            return None
    stream = streams[rel.name]
    body: mmpl.Rel = mmpl.RelationRef(stream.name)
    for operator in reversed(operators):
        body = replace(operator, input=body)  # type: ignore[call-arg]  # all of these operators have it
    name = f"{relation} selected"
    alone = mmpl.Program((stream,), (mmpl.ViewDef(name, body),), (name,))
    kernels = compile_graph(build_graph(alone, TypeAnalysis(alone)), (stream,))
    transforms = [t for t in kernels.transforms.values() if isinstance(t, RowWiseTransform)]
    source = kernels.inputs[name]
    if len(transforms) < len(kernels.transforms) or source.layout.evolving or len(source.layout.key) != 1:
        return None
    # The conditions of imports are among the checks, also those of brokers in between.
    lines = [f"WHERE {print_expression(check)}" for check in stream.checks]
    lines += ["".join(_text(part) for part in operator.line()) for operator in reversed(operators)]
    homes = {s.name: s for s in program.streams} | {
        i.name: i.definition.input_streams[0]
        for i in program.imports
        if i.definition is not None and i.stream is not None
    }
    return StreamSelection(
        rel.name,
        stream.name,
        not homes[rel.name].publisher_timed,
        replace(source, name=relation),
        "\n".join(lines),
        transforms,
    )


def _text(part: object) -> str:
    return print_expression(part) if isinstance(part, mmpl.Expr) else str(part)
