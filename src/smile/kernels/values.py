"""VALUES: rows that exist before any event. The first batch has them as changes; afterwards nothing changes."""

from collections.abc import Sequence

import numpy as np

from smile.algebra import mmpl
from smile.columns import masks
from smile.columns.values import from_python
from smile.kernels.delta import Delta, RowKnowledge
from smile.kernels.layout import Layout
from smile.kernels.seals import HorizonAdvance
from smile.kernels.transform import State, Transform


class ValuesTransform(Transform):
    def __init__(self, rel: mmpl.Values) -> None:
        self.rel = rel
        self.layout = Layout(rel.key, dict(rel.columns), certain=True)

    def initial_rows(self) -> Delta:
        count = len(self.rel.rows)
        fixed = {
            name: from_python([row[i] for row in self.rel.rows], data)
            for i, (name, data) in enumerate(self.rel.columns)
        }
        return Delta(fixed, None, RowKnowledge({}, masks.full(masks.T, count), np.ones(count, np.int64)))

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        return state, None
