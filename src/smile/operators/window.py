"""TUMBLE and HOP, which add the windows that a row is in, and LAST, which hides rows as the horizon passes them."""

from collections.abc import Sequence
from dataclasses import replace

from smile import limits
from smile.algebra import mmpl
from smile.algebra.coercions import interval_text
from smile.algebra.heading import ColumnNames, Heading, check_columns_exist, check_unique
from smile.algebra.types import TICKS_PER_MICROSECOND, TIME, TIMESTAMP
from smile.errors import error
from smile.knowledge.expression_types import conjunction_mask
from smile.knowledge.seals import Seal
from smile.knowledge.state_retention import StateRetention
from smile.knowledge.symbolic import Bound, Interval
from smile.knowledge.types import MaskDirection, MaskType, RelationType
from smile.knowledge.values.range import Range
from smile.operators.operator import BottomRow, BottomRowLookup, HeadingLookup, Operator, StateLookup, TypeLookup

WINDOW_COLUMNS = ("window_start", "window_end")

_OLD_WINDOWS_HINT = (
    "Of windows, take the newest: ORDER BY window_end DESC LIMIT 10. Or group only the events of the last time: "
    "FROM TUMBLE(s, t, INTERVAL '1' MINUTE) WHERE t > NOW() - INTERVAL '10' MINUTE GROUP BY window_end."
)


def recent_rows_hint(heading: Heading) -> str:
    """What to write where the rows of the last time are selected by a column that is not their tick."""
    if heading.tick and heading.tick[0] not in heading.hidden:
        return f"Use its tick, which is {heading.tick[0]}."
    return _OLD_WINDOWS_HINT


class WindowOperator(Operator[mmpl.Window]):
    def heading(self, rel: mmpl.Window, lookup: HeadingLookup) -> Heading:
        heading = lookup.heading_of(rel.input)
        check_columns_exist((rel.on,), heading, rel.span)
        on_type = heading.columns[rel.on]
        if on_type not in (TIME, TIMESTAMP):
            raise error("E046", f"a window needs a time or a timestamp, but {rel.on} is {on_type}", rel.span)
        if rel.size <= 0 or (rel.slide is not None and rel.slide <= 0):
            raise error("E046", "the size and slide of a window must be positive", rel.span)
        if not 0 <= rel.offset < (rel.slide or rel.size):
            message = "the offset of a window must be at least 0 and less than its size, or than the slide of HOP"
            raise error("E046", message, rel.span)
        intervals = (rel.size, rel.slide or 0, rel.offset)
        if on_type == TIMESTAMP and any(interval % TICKS_PER_MICROSECOND for interval in intervals):
            message = "the size, slide and offset of a window on a timestamp must be whole microseconds"
            raise error("E046", message, rel.span)
        if rel.windows_per_row > limits.windows_max:
            windows, windows_max = rel.windows_per_row, limits.windows_max
            message = f"a row would be in {windows:,} windows at once, the maximum is {windows_max:,}"
            raise error("E046", message, rel.span, "Increase the slide or decrease the size of the window.")
        if rel.kind == "last":
            if heading.tick[:1] != (rel.on,):
                message = f"LAST needs the tick of the relation, but {rel.on} is not its tick"
                raise error("E043", message, rel.span, recent_rows_hint(heading))
            return replace(heading, total=False)
        check_unique((*heading.columns, *WINDOW_COLUMNS), rel.span)
        columns = {**heading.columns, **dict.fromkeys(WINDOW_COLUMNS, on_type)}
        key = (*heading.key, "window_start") if rel.kind == "hop" else heading.key
        return replace(heading, columns=columns, key=key, total=False)

    def relation_type(self, rel: mmpl.Window, lookup: TypeLookup) -> RelationType:
        source, heading = lookup.relation_type(rel.input), lookup.heading_of(rel)
        on = source.columns[rel.on]
        if rel.kind == "last":
            mask = conjunction_mask([source.mask, MaskType(MaskDirection.FALLS, Bound.from_number(2))])
            seals = {s: seal.latest(Seal.from_column(rel.on, rel.size)) for s, seal in source.seals.items()}
            return replace(source, heading=heading, mask=mask, seals=seals)
        unit = 1 if on.data == TIME else TICKS_PER_MICROSECOND
        if on.evolves:
            raise error("E046", f"a window needs a column that does not change, and {rel.on} evolves", rel.span)
        starts = _window_starts(on.range, rel.size // unit, rel.offset // unit, rel.slide is not None)
        length = Interval.exactly(rel.size // unit)
        ranges = (starts, starts + length if starts is not None else None)
        time_column = replace(on, nullable=False)
        window_column = replace(time_column, domain="once")
        bounds = {n: window_column.with_range(r) for n, r in zip(WINDOW_COLUMNS, ranges, strict=True)}
        # A row without a time is in no window.
        constraints = source.constraints.where_not_null([rel.on]).with_constraints(
            [
                (rel.on, "window_end", -unit),
                ("window_start", rel.on, 0),
                ("window_end", "window_start", rel.size),
                ("window_start", "window_end", -rel.size),
            ]
        )
        copies = Bound.from_number(rel.windows_per_row)
        columns = {**source.columns, rel.on: time_column, **bounds}
        reach = constraints.extend_reach(source.reach, heading.columns)
        dependencies = source.dependencies
        if rel.slide is None:
            dependencies = dependencies.add([rel.on], WINDOW_COLUMNS)
        return replace(
            source, heading=heading, columns=columns, constraints=constraints, rows=source.rows * copies,
            events=source.events * copies, reach=reach, dependencies=dependencies,
            shares_ticks=source.shares_ticks or rel.kind == "hop",
        )  # fmt: skip

    def bottom_row(self, rel: mmpl.Window, lookup: BottomRowLookup) -> BottomRow:
        source = lookup.bottom_row(rel.input)
        return source if rel.kind == "last" else source | {c: Range.bottom() for c in WINDOW_COLUMNS}

    def state(self, rel: mmpl.Window, lookup: StateLookup) -> list[StateRetention]:
        if rel.kind != "last":
            return []
        return [StateRetention("each row", f"the horizon reaches {rel.on} + {interval_text(rel.size)}")]

    def input_storage_reason(self, rel: mmpl.Window) -> str | None:
        return "reads its earlier rows" if rel.kind == "last" else None

    def has_expiring_rows(self, rel: mmpl.Window, inputs: Sequence[bool]) -> bool:
        return rel.kind == "last" or inputs[0]

    def partition_columns(self, rel: mmpl.Window, heading: Heading) -> list[ColumnNames] | None:
        # The rows of LAST are processed independently, but the state of each must be in one partition.
        return [(c,) for c in heading.columns] if rel.kind == "last" else None


def _window_starts(times: Interval | None, size: int, offset: int, overlap: bool) -> Interval | None:
    """The starts of windows that contain these times. Windows that do not overlap start at the offset plus multiples of
    their size."""
    if times is None:
        return None
    first = times.lo.number
    if overlap or not isinstance(first, int):
        return Interval(times.lo - Bound.from_number(size - 1), times.hi)
    return Interval(Bound.from_number((first - offset) // size * size + offset), times.hi)
