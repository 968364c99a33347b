"""What users publish, as lists of events: a single event, a list, an iterable, or a data frame.

A list is one publication: all of its events are logged or none. Anything longer than memory, and every data frame, is
divided into publications of at most `limits.client_publication_events` events.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Protocol, runtime_checkable

from smile import limits
from smile.client.session import Event
from smile.errors import EVENT_NUMBER, Diagnostic, SmileError, error
from smile.extras import libraries_of

PANDAS_INDEX = re.compile(r"__index_level_\d+__")


@runtime_checkable
class ArrowStreamExporter(Protocol):
    """What pandas, Polars and Arrow tables have in common: their rows as a stream of Arrow batches."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


@runtime_checkable
class LazyFrame(Protocol):
    """A frame of Polars that is computed when it is collected."""

    @property
    def collect(self) -> Callable[..., Any]: ...


Events = Event | Iterable[Any] | ArrowStreamExporter | LazyFrame
"""One event, several of them, or a data frame of pandas or Polars or a table of Arrow with a row for each event."""


def divide_into_publications(events: Events) -> Iterator[Sequence[Event]]:
    """The events in publications of a bounded size. A list or tuple is always one publication."""
    if isinstance(events, Mapping | str):
        yield [events]
    elif isinstance(events, ArrowStreamExporter) and not hasattr(events, "to_frame"):
        yield from _read_frame(events)
    elif isinstance(events, LazyFrame):
        yield from _read_frame(events.collect())
    elif hasattr(events, "to_frame"):
        hint = "Publish the data frame itself; a row of it is row.to_dict(), and a column is series.to_frame()."
        raise error("E078", f"the {type(events).__name__} is a row or a column, and no events", hint=hint)
    elif isinstance(events, Sequence):
        yield events
    else:
        try:
            iterator = iter(events)
        except TypeError:
            hint = "Publish a dict, a JSON text, a list of them, or a data frame."
            raise error("E078", f"{type(events).__name__} is not an event", hint=hint) from None
        while part := list(islice(iterator, limits.client_publication_events)):
            yield part


def _read_frame(frame: ArrowStreamExporter) -> Iterator[Sequence[Mapping[str, Any]]]:
    with libraries_of("frames"):
        import pyarrow as pa  # noqa: PLC0415  # slow to import, and only needed for data frames

    try:
        reader = pa.RecordBatchReader.from_stream(frame)
    except (pa.ArrowException, TypeError, ValueError) as problem:
        raise _frame_error(frame, problem) from None
    for batch in reader:
        for start in range(0, batch.num_rows, limits.client_publication_events):
            yield batch_rows(batch.slice(start, limits.client_publication_events))


def batch_rows(batch: Any) -> list[dict[str, Any]]:  # Any: pyarrow has no type hints
    """The values of each row of an Arrow batch. An index of pandas without a name is no column. Times become those of
    the broker: microseconds. Arrow refuses to round them."""
    import pyarrow as pa  # noqa: PLC0415

    columns = dict[str, list[Any]]()
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if PANDAS_INDEX.fullmatch(field.name):
            continue
        if field.name in columns:
            raise error("E075", f"the column {field.name} is given twice", hint="Remove one of them.")
        if pa.types.is_timestamp(field.type):
            try:
                column = column.cast(pa.timestamp("us", field.type.tz))
            except pa.ArrowInvalid:
                hint = "A timestamp has microseconds: round the column first."
                raise error("E078", f"{field.name}: a time has nanoseconds", hint=hint) from None
        columns[field.name] = column.to_pylist()
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _frame_error(frame: Any, problem: Exception) -> SmileError:
    """Why a data frame cannot be read. Of columns with values of several types, pandas says so only here."""
    reason = "; ".join(str(part) for part in problem.args) or type(problem).__name__
    hint = "Publish a data frame or a table with a column for each column of the stream, of one type each."
    names = list(getattr(frame, "columns", ()))
    for name in names:
        if names.count(name) > 1:
            return error("E075", f"the column {name} is given twice", hint="Remove one of them.")
    if hasattr(frame, "iloc") and names:
        number = _first_unreadable_row(frame)
        hint = "Give each column values of one type, or publish frame.to_dict('records')."
        return error("E078", f"event {number}: the data frame cannot be read: {reason}", hint=hint)
    return error("E078", f"the {type(frame).__name__} cannot be read: {reason}", hint=hint)


def _first_unreadable_row(frame: Any) -> int:
    """The number of the first row with which the rows of a frame of pandas are no Arrow table, by binary search."""
    import pyarrow as pa  # noqa: PLC0415

    readable, unreadable = 0, len(frame)
    while unreadable - readable > 1:
        middle = (readable + unreadable) // 2
        try:
            pa.RecordBatchReader.from_stream(frame.iloc[:middle])
        except (pa.ArrowException, TypeError, ValueError):
            unreadable = middle
        else:
            readable = middle
    return unreadable


def count_from_first(problem: SmileError, published: int) -> SmileError:
    """The broker counts the events of one publication. Users count those of the whole frame or iterator, and must know
    how many of them were published before."""
    if not published:
        return problem

    def count(diagnostic: Diagnostic) -> Diagnostic:
        message = EVENT_NUMBER.sub(lambda m: f"event {int(m[1]) + published}", diagnostic.message)
        hint = f"Continue with event {published + 1:,}: those before are published."
        return replace(
            diagnostic,
            message=f"{message}; {published:,} events are published",
            hint=f"{diagnostic.hint} {hint}" if diagnostic.hint else hint,
        )

    counted = SmileError([count(diagnostic) for diagnostic in problem.diagnostics])
    counted.published = published
    return counted
