"""Frames of ROWS: the positions of their first and last row, relative to the row itself."""

from sqlglot import exp

from smile.errors import SmileError, error
from smile.lang.spans import span_of


def frame_positions(spec: exp.WindowSpec) -> tuple[int | None, int]:
    """The positions of `ROWS BETWEEN … AND …`, negative before the row. The first is None if it is unbounded."""
    start, end = spec.args.get("start"), spec.args.get("end")
    last = 0 if end is None else _position(spec, end, spec.args.get("end_side"))
    if start == "UNBOUNDED" and spec.args.get("start_side") == "PRECEDING":
        if last != 0:
            raise _frame_error(spec, "A frame that begins with the first row ends at CURRENT ROW.")
        return None, last
    return _position(spec, start, spec.args.get("start_side")), last


def _position(spec: exp.WindowSpec, end: object, side: object) -> int:
    if end == "CURRENT ROW":
        return 0
    if end == "UNBOUNDED":
        raise _frame_error(spec, "Only PRECEDING can be UNBOUNDED: no row is known to be the last one.")
    if not isinstance(end, exp.Literal) or end.is_string or not end.name.isdecimal():
        raise _frame_error(spec, "Write numbers of rows: ROWS BETWEEN 2 PRECEDING AND CURRENT ROW.")
    return int(end.name) if side == "FOLLOWING" else -int(end.name)


def _frame_error(spec: exp.WindowSpec, hint: str) -> SmileError:
    span = span_of(spec) or (span_of(spec.parent) if spec.parent else None)
    return error("E013", "this frame is not supported", span, hint)
