"""Transforms that process each row separately. They have no state, and do not depend on other rows."""

from collections.abc import Mapping, Sequence

import numpy as np

from smile.algebra import mmpl
from smile.algebra.coercions import INTEGER_RANGES
from smile.algebra.types import INT, INT_MIN, TICKS_PER_MICROSECOND, TIMESTAMP
from smile.columns import masks, values as v
from smile.columns.knowledge import KnowledgeColumn, MaskColumn, current_values
from smile.columns.masks import MaskCodes
from smile.columns.ranges import to_kind
from smile.columns.row_limit import check_row_count
from smile.columns.values import Bools, ValueColumn
from smile.kernels.delta import ColumnOverlay, ColumnSelection, Delta, RowKnowledge, concat_deltas, restrict_masks
from smile.kernels.expressions import Expression, compile_expression
from smile.kernels.expressions.latest_expression import LatestExpression
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.kernels.seals import HorizonAdvance, shift_ticks
from smile.kernels.transform import InputRelation, OutputRelation, RowWiseTransform, State, Transform, X
from smile.knowledge.expression_types import only_latest_column


class RestrictTransform(RowWiseTransform):
    """The mask of a row becomes the conjunction of its mask and the predicate. A NULL predicate counts as false."""

    def __init__(self, rel: mmpl.Restrict, source: InputRelation, output: OutputRelation) -> None:
        super().__init__(source)
        self.predicate = compile_expression(rel.predicate, source.layout, source.limits)
        source_layout = source.layout
        is_decided = self.predicate.kind == "exact" and not output.includes_permanently_hidden
        self.layout = Layout(
            source_layout.key,
            source_layout.fixed,
            source_layout.evolving,
            source_layout.certain and is_decided,
            output.includes_permanently_hidden,
        )

    def apply(self, delta: Delta) -> Delta:
        if self.predicate.kind == "exact":
            truths = self.predicate(delta.fixed, {}, len(delta))
            assert isinstance(truths, ValueColumn)
            holds = truths.data if truths.valid is None else truths.data & truths.valid
            if holds.all():
                return delta
            if not self.layout.includes_permanently_hidden:
                return delta.take(np.flatnonzero(holds))
            codes = np.where(holds, np.uint8(masks.T), np.uint8(masks.F))
            old = None if delta.old is None else restrict_masks(delta.old, codes)
            return Delta(delta.fixed, old, restrict_masks(delta.new, codes))
        old = None if delta.old is None else self._restrict(delta.fixed, delta.old)
        return Delta(delta.fixed, old, self._restrict(delta.fixed, delta.new))

    def compute_masks(self, delta: Delta) -> MaskCodes:
        """The new masks of the delta's rows, which include permanently hidden ones."""
        return self._restrict(delta.fixed, delta.new).mask

    def _restrict(self, fixed: Mapping[str, ValueColumn], knowledge: RowKnowledge) -> RowKnowledge:
        truths = self.predicate(fixed, knowledge.columns, len(knowledge))
        assert isinstance(truths, MaskColumn)
        return restrict_masks(knowledge, predicate_masks(truths))


def predicate_masks(truths: MaskColumn) -> MaskCodes:
    """The masks of a predicate. NULL counts as false."""
    possible, now = truths.possible, truths.now
    can_be_false_or_null = (possible & 6) != 0
    return masks.pack_codes((possible & 1) != 0, can_be_false_or_null, now == 1)


class ExtendTransform(RowWiseTransform):
    """Adds computed columns. A column is exact if all columns of its expression are."""

    def __init__(self, rel: mmpl.Extend, source: InputRelation, output: OutputRelation) -> None:
        super().__init__(source)
        source_layout = source.layout
        fixed, evolving = dict(source_layout.fixed), dict(source_layout.evolving)
        self.copied: dict[str, str] = {}
        self.computed: dict[str, Expression | LatestExpression] = {}
        for name, expr in rel.assignments:
            if isinstance(expr, mmpl.ColumnRef):
                self.copied[name] = expr.name
                if expr.name in source_layout.fixed:
                    fixed[name] = source_layout.fixed[expr.name]
                else:
                    evolving[name] = source_layout.evolving[expr.name]
                continue
            latest = only_latest_column(expr, source.type.columns)
            expression = self.computed[name] = (
                compile_expression(expr, source_layout, source.limits)
                if latest is None or latest in source_layout.fixed
                else LatestExpression(expr, latest, source_layout, source.limits)
            )
            if expression.kind == "exact":
                fixed[name] = expression.data
            else:
                evolving[name] = EvolvingColumnLayout(expression.kind, expression.data)
        self.layout = Layout(
            source_layout.key, fixed, evolving, source_layout.certain, output.includes_permanently_hidden
        )

    def apply(self, delta: Delta) -> Delta:
        count = len(delta)
        added = {}
        for name, source in self.copied.items():
            if name in self.layout.fixed:
                added[name] = delta.fixed[source]
        for name, expression in self.computed.items():
            if expression.kind == "exact":
                values = expression(delta.fixed, {}, count)
                assert isinstance(values, ValueColumn)
                added[name] = values
        fixed = ColumnOverlay(delta.fixed, added) if added else delta.fixed
        old = None if delta.old is None else self._extend(delta.fixed, delta.old)
        return Delta(fixed, old, self._extend(delta.fixed, delta.new))

    def _extend(self, fixed: Mapping[str, ValueColumn], knowledge: RowKnowledge) -> RowKnowledge:
        added: dict[str, KnowledgeColumn] = {}
        for name, source in self.copied.items():
            if name in self.layout.evolving:
                added[name] = knowledge.columns[source]
        for name, expression in self.computed.items():
            if expression.kind != "exact":
                added[name] = expression(fixed, knowledge.columns, len(knowledge))
        return (
            RowKnowledge(ColumnOverlay(knowledge.columns, added), knowledge.mask, knowledge.steps)
            if added
            else knowledge
        )


class ProjectTransform(RowWiseTransform):
    """Removes columns, but never those of the key."""

    def __init__(self, source: InputRelation, output: OutputRelation) -> None:
        super().__init__(source)
        columns, source_layout = output.type.heading.columns, source.layout
        fixed = {c: source_layout.fixed[c] for c in columns if c in source_layout.fixed}
        evolving = {c: source_layout.evolving[c] for c in columns if c in source_layout.evolving}
        self.layout = Layout(
            output.type.heading.key, fixed, evolving, source_layout.certain, output.includes_permanently_hidden
        )

        self.fixed_names, self.evolving_names = {c: c for c in fixed}, {c: c for c in evolving}

    def apply(self, delta: Delta) -> Delta:
        old = None if delta.old is None else self._project(delta.old)
        return Delta(ColumnSelection(delta.fixed, self.fixed_names), old, self._project(delta.new))

    def _project(self, knowledge: RowKnowledge) -> RowKnowledge:
        return RowKnowledge(ColumnSelection(knowledge.columns, self.evolving_names), knowledge.mask, knowledge.steps)


class RenameTransform(RowWiseTransform):
    def __init__(self, rel: mmpl.Rename, source: InputRelation, output: OutputRelation) -> None:
        super().__init__(source)
        source_layout = source.layout
        self.new_names = {c: c for c in source_layout.types} | dict(rel.pairs)
        fixed = {self.new_names[c]: t for c, t in source_layout.fixed.items()}
        evolving = {self.new_names[c]: e for c, e in source_layout.evolving.items()}
        self.layout = Layout(
            tuple(self.new_names[c] for c in source_layout.key),
            fixed,
            evolving,
            source_layout.certain,
            output.includes_permanently_hidden,
        )
        self.fixed_names = {self.new_names[c]: c for c in source_layout.fixed}
        self.evolving_names = {self.new_names[c]: c for c in source_layout.evolving}

    def apply(self, delta: Delta) -> Delta:
        old = None if delta.old is None else self._rename(delta.old)
        return Delta(ColumnSelection(delta.fixed, self.fixed_names), old, self._rename(delta.new))

    def _rename(self, knowledge: RowKnowledge) -> RowKnowledge:
        return RowKnowledge(ColumnSelection(knowledge.columns, self.evolving_names), knowledge.mask, knowledge.steps)

    def source_key(self, key: Mapping[str, X]) -> Mapping[str, X]:
        old_names = {new: c for c, new in self.new_names.items()}
        return {old_names[c]: column for c, column in key.items()}


class IdentityTransform(RowWiseTransform):
    """A view that is another name for a relation."""

    def __init__(self, source: InputRelation, output: OutputRelation) -> None:
        super().__init__(source)
        source_layout = source.layout
        self.layout = Layout(
            source_layout.key,
            source_layout.fixed,
            source_layout.evolving,
            source_layout.certain,
            output.includes_permanently_hidden,
        )

    def apply(self, delta: Delta) -> Delta:
        return delta


class HopTransform(RowWiseTransform):
    """A row occurs once for each window that contains it, and never if its time is NULL. TUMBLE is a HOP whose slide is
    its size."""

    def __init__(self, rel: mmpl.Window, source: InputRelation, output: OutputRelation) -> None:
        super().__init__(source)
        source_layout = source.layout
        self.on, data = rel.on, source_layout.types[rel.on]
        unit = TICKS_PER_MICROSECOND if data == TIMESTAMP else 1
        self.size, self.slide, self.offset = rel.size // unit, (rel.slide or rel.size) // unit, rel.offset // unit
        self.windows = rel.windows_per_row
        self.first, self.last = INTEGER_RANGES[data.name]
        self.start_min = max(self.first - self.slide + 1, INT_MIN)
        fixed = {**source_layout.fixed, "window_start": data, "window_end": data}
        self.layout = Layout(
            output.type.heading.key,
            fixed,
            source_layout.evolving,
            source_layout.certain,
            output.includes_permanently_hidden,
        )

    def apply(self, delta: Delta) -> Delta:
        if self.on in delta.fixed:
            moments = delta.fixed[self.on]
        else:
            moments, delta = self._resolve_moments(delta)
        if moments.valid is not None:
            delta, moments = delta.take(np.flatnonzero(moments.valid)), moments.take(np.flatnonzero(moments.valid))
        check_row_count(self.windows * len(delta), "rows in windows")
        first_starts = moments.data // self.slide * self.slide
        if self.offset:
            is_after = moments.data - first_starts >= self.offset
            first_starts = first_starts + np.where(is_after, self.offset, self.offset - self.slide)
        parts = []
        for distance in range(0, self.size, self.slide):
            start = first_starts - distance
            # Windows are cut off at the ends of time. Of those that would begin before it, there is only the last.
            inside = np.flatnonzero((moments.data - start < self.size) & (start >= self.start_min))
            part = delta if len(inside) == len(delta) else delta.take(inside)
            starts = start[inside]
            bounds = {
                "window_start": ValueColumn(np.maximum(starts, self.first)),
                "window_end": ValueColumn(np.minimum(shift_ticks(starts, self.size), self.last)),
            }
            parts.append(Delta(ColumnOverlay(part.fixed, bounds), part.old, part.new))
        return concat_deltas(self.layout, parts)

    def _resolve_moments(self, delta: Delta) -> tuple[ValueColumn, Delta]:
        """The window column is an aggregate over the only member of a group. It has its permanent value once the member
        is shown; until then the row is in no window."""
        new, is_known = _without_unknown_moments(delta.new, self.on)
        if delta.old is None:
            return ValueColumn(current_values(new.columns[self.on]).data, is_known), Delta(delta.fixed, None, new)
        old, was_known = _without_unknown_moments(delta.old, self.on)
        moments = v.where(is_known, current_values(new.columns[self.on]), current_values(old.columns[self.on]))
        return ValueColumn(moments.data, is_known | was_known), Delta(delta.fixed, old, new)


def _without_unknown_moments(knowledge: RowKnowledge, on: str) -> tuple[RowKnowledge, Bools]:
    is_known = current_values(knowledge.columns[on]).is_valid() & masks.is_present(knowledge.mask)
    return RowKnowledge(
        knowledge.columns, np.where(is_known, knowledge.mask, np.uint8(masks.ABSENT)), knowledge.steps
    ), is_known


class UnionTransform(Transform):
    """MERGE and UNION ALL: all rows of all inputs, each with the position of its input."""

    def __init__(
        self, rel: mmpl.Merge | mmpl.Union, sources: tuple[InputRelation, ...], output: OutputRelation
    ) -> None:
        self.position_column = "source" if isinstance(rel, mmpl.Merge) else "branch"
        heading = output.type.heading
        evolving: dict[str, EvolvingColumnLayout] = {}
        for source in sources:
            for name, column in source.layout.evolving.items():
                if name in heading.columns:
                    # Inputs can have different kinds for one column.
                    evolving[name] = evolving.get(name, column).common_with(column)
        fixed = {c: t for c, t in heading.columns.items() if c not in evolving}
        certain = all(s.layout.certain for s in sources)
        self.layout = Layout(heading.key, fixed, evolving, certain, output.includes_permanently_hidden)

    def step(self, state: State, inputs: Sequence[Delta | None], advance: HorizonAdvance) -> tuple[State, Delta | None]:
        parts = [self._with_position(n, delta) for n, delta in enumerate(inputs, 1) if delta is not None]
        return state, concat_deltas(self.layout, parts) if parts else None

    def has_sealing_rows(self, advance: HorizonAdvance) -> bool:
        return False

    def _with_position(self, number: int, delta: Delta) -> Delta:
        count = len(delta)
        fixed = {}
        for name, data in self.layout.fixed.items():
            if name == self.position_column:
                fixed[name] = v.constant(number, INT, count)
            else:
                fixed[name] = delta.fixed[name] if name in delta.fixed else v.nulls(data, count)
        old = None if delta.old is None else self._lift_knowledge(delta.fixed, delta.old)
        return Delta(fixed, old, self._lift_knowledge(delta.fixed, delta.new))

    def _lift_knowledge(self, fixed: Mapping[str, ValueColumn], knowledge: RowKnowledge) -> RowKnowledge:
        return RowKnowledge(lift_columns(self.layout, fixed, knowledge), knowledge.mask, knowledge.steps)


def lift_columns(
    layout: Layout, fixed: Mapping[str, ValueColumn], knowledge: RowKnowledge
) -> Mapping[str, KnowledgeColumn]:
    """The evolving columns of a layout, for rows in which some of them are exact, or missing and therefore NULL."""
    columns: dict[str, KnowledgeColumn] = {}
    for name, evolving in layout.evolving.items():
        if name in knowledge.columns:
            columns[name] = to_kind(knowledge.columns[name], evolving.kind, evolving.data)
        else:
            exact = fixed[name] if name in fixed else v.nulls(evolving.data, len(knowledge))
            columns[name] = to_kind(exact, evolving.kind, evolving.data)
    return columns
