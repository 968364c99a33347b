"""Parses the statements of the registry: ADVERTISE and CREATE REPUBLISHER. Their conditions have no subqueries,
so `from` is a name there, as in the example of the paper."""

from collections.abc import Callable

from sqlglot import exp

from smile.errors import error
from smile.lang.cursor import TokenCursor
from smile.lang.statements import AdvertiseProducer, CreateRepublisher, CreateStream, Name

_SELECTION_HINT = "Write CREATE REPUBLISHER r AS SELECT * FROM s WHERE …. Compute anything else in a view of it."


def read_advertise(cursor: TokenCursor, read_stream: Callable[[], CreateStream]) -> AdvertiseProducer:
    """`ADVERTISE stream WHERE condition AS name`. `read_stream` reads the stream's name and columns, if there are
    columns."""
    stream = read_stream() if cursor.is_at("(", ahead=1) else None
    relation = cursor.read_name("a global stream") if stream is None else stream.name
    condition = _read_condition(cursor, "AS")
    alias = cursor.read_name("the name of the producer") if cursor.skip("AS") else None
    return AdvertiseProducer(relation, condition, alias, cursor.span_from(0), stream)


def read_republisher(cursor: TokenCursor, name: Name) -> CreateRepublisher:
    """`AS SELECT * FROM stream WHERE condition WITH (HISTORY = interval)`."""
    cursor.expect("AS")
    first = cursor.index
    if not cursor.skip("SELECT", "*", "FROM"):
        message = "a republisher selects events of one global stream"
        raise error("E180", message, cursor.span_from(first, len(cursor.tokens)), _SELECTION_HINT)
    relation = cursor.read_name("a global stream")
    condition = _read_condition(cursor, "WITH")
    history = _read_history(cursor) if cursor.skip("WITH") else None
    if cursor.token is not None:
        message = "a republisher selects events of one global stream"
        raise error("E180", message, cursor.span_from(first, len(cursor.tokens)), _SELECTION_HINT)
    return CreateRepublisher(name, relation, condition, cursor.span_from(0), history)


def _read_history(cursor: TokenCursor) -> exp.Expr:
    """`(HISTORY = interval)`: the interval."""
    first = cursor.index
    option = cursor.read_condition()
    is_history = isinstance(option, exp.EQ) and isinstance(option.this, exp.Column)
    if not is_history or option.this.name.upper() != "HISTORY":
        hint = "Write WITH (HISTORY = INTERVAL '1' HOUR)."
        raise error("E180", "this is no option of a republisher", cursor.span_from(first), hint)
    interval: exp.Expr = option.expression
    return interval


def _read_condition(cursor: TokenCursor, end: str | None) -> exp.Expr | None:
    if not cursor.skip("WHERE"):
        return None
    cursor.take_as_names("FROM")
    return cursor.read_condition_before(end)
