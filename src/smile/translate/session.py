"""The end of a session: `window_end` of the groups of a SESSION is `MAX(t) + gap`, so GROUP BY needs only the start."""

from collections.abc import Iterator, Mapping

from sqlglot import exp

from smile import lang
from smile.errors import SmileError, error
from smile.lang import span_of, widen_span
from smile.translate.scope import is_quoted

_START, _END = "window_start", "window_end"


def replace_session_ends(select: exp.Select) -> exp.Select:
    """The query itself if its FROM has no SESSION, or if it does not use the end of one."""
    sessions = dict(_sessions(select))
    if not sessions or not any(_session_of(c, sessions) for c in _own_columns(select)):
        return select
    select = select.copy()
    sessions = dict(_sessions(select))
    _take_ends_out_of_group(select, sessions)
    for column in list(_own_columns(select)):
        session = _session_of(column, sessions)
        if session is None:
            continue
        if column.find_ancestor(exp.Where) is not None:
            raise _misplaced_error(column, "Use HAVING instead of WHERE.")
        output = column.parent is select
        end = _end_of(session, column)
        column.replace(exp.alias_(end, column.name, copy=False) if output else end)
    return select


def _sessions(select: exp.Select) -> Iterator[tuple[str, lang.StreamFunction]]:
    """The SESSIONs in FROM, by the names under which their columns are known."""
    from_ = select.args.get("from_")
    sources = [from_.this] if from_ is not None else []
    for source in [*sources, *(j.this for j in select.args.get("joins") or [])]:
        if isinstance(source, lang.StreamFunction) and source.kind == "session":
            (relation,) = source.relations
            yield (source.alias or relation.alias_or_name).casefold(), source


def _own_columns(select: exp.Select) -> Iterator[exp.Column]:
    """The columns of the query, without those of FROM and of subqueries."""
    parts = [e for key, value in select.args.items() if key not in ("from_", "joins", "with_") for e in _nodes(value)]
    for part in parts:
        for node in part.walk(bfs=False, prune=lambda n: isinstance(n, exp.Query)):
            if isinstance(node, exp.Column):
                yield node


def _nodes(value: object) -> list[exp.Expr]:
    return [n for n in (value if isinstance(value, list) else [value]) if isinstance(n, exp.Expr)]


def _session_of(column: exp.Column, sessions: Mapping[str, lang.StreamFunction]) -> lang.StreamFunction | None:
    """The SESSION whose end a column is; None if it is another column."""
    if column.name.casefold() != _END or (is_quoted(column.this) and column.name != _END):
        return None
    if column.table:
        return sessions.get(column.table.casefold())
    return next(iter(sessions.values())) if len(sessions) == 1 else None


def _take_ends_out_of_group(select: exp.Select, sessions: Mapping[str, lang.StreamFunction]) -> None:
    """The start of a session determines its end."""
    group = select.args.get("group")
    items = group.expressions if group is not None else []
    meant = [_grouped(item, select) for item in items]
    if not any(isinstance(e, exp.Column) and e.name.casefold() == _START for e in meant):
        column = next(c for c in _own_columns(select) if _session_of(c, sessions))
        raise _misplaced_error(column, f"Add {_START} to GROUP BY.")
    assert group is not None
    rest = [
        item
        for item, e in zip(items, meant, strict=True)
        if not (isinstance(e, exp.Column) and _session_of(e, sessions) is not None)
    ]
    group.set("expressions", rest)


def _grouped(item: exp.Expr, select: exp.Select) -> exp.Expr:
    """What an item of GROUP BY stands for, if it is the number of an output."""
    if isinstance(item, exp.Literal) and item.name.isdecimal() and 1 <= int(item.name) <= len(select.expressions):
        output: exp.Expr = select.expressions[int(item.name) - 1]
        return output.unalias()
    return item


def _end_of(session: lang.StreamFunction, column: exp.Column) -> exp.Expr:
    assert session.column is not None
    tick = session.column.copy()
    if column.table:
        tick.set("table", column.args["table"].copy())
    greatest = exp.Max(this=tick)
    end = exp.Paren(this=exp.Add(this=greatest, expression=session.intervals[0].copy()))
    span = span_of(column)
    if span is not None:
        for node in (greatest, end.this, end):
            widen_span(node, span)
    return end


def _misplaced_error(column: exp.Column, hint: str) -> SmileError:
    return error("E194", "the end of a session is known only of its rows together", span_of(column), hint)
