"""HTTP responses and errors: an error has a code of the catalogue, a message, a hint and an HTTP status.

No response reveals more of the broker than its caller asked about.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response

from smile import limits
from smile.broker.maintenance.listener import ViewPause
from smile.errors import CATALOGUE, Diagnostic, SmileError
from smile.gateway.http.bodies import ErrorBody, FailureBody, PauseBody
from smile.source import Source

encode = msgspec.json.Encoder().encode

_STATUS_BY_CODE: Final[Mapping[str, int]] = {
    "E003": 413, "E021": 404, "E076": 404, "E081": 409, "E082": 409, "E083": 409, "E090": 403, "E091": 401, "E092": 503,
    "E095": 410, "E096": 409, "E097": 410, "E098": 503, "E102": 409, "E104": 403, "E108": 504, "E109": 503, "E110": 409,
    "E114": 503, "E128": 409, "E129": 404, "E131": 409, "E132": 404, "E135": 409, "E136": 409, "E137": 409, "E138": 503,
    "E140": 409, "E141": 409, "E143": 404, "E146": 410, "E185": 409, "E186": 409, "E187": 409, "E188": 409, "E190": 404,
    "E192": 503, "E193": 410, "E197": 410, "E205": 409, "E208": 404, "E209": 503,
}  # fmt: skip
"""Of the other codes, errors that the caller has not caused (E06x, E084–E089, E101, E105) are 503, and the rest is
400."""

_ERROR_HEADERS: Final[Mapping[int, Mapping[str, str]]] = {
    401: {"www-authenticate": "Bearer"},
    # The rest of the body would have to be read before the next request.
    413: {"connection": "close"},
    429: {"retry-after": "1"},
    503: {"retry-after": "1"},
}

_BROKER_FAULT_CODES: Final = ("E06", "E084", "E085", "E086", "E087", "E088", "E089", "E101", "E105")


class HttpError(SmileError):
    """An error whose status depends on where it occurs."""

    def __init__(self, status: int, code: str, message: str, hint: str | None = None) -> None:
        assert code in CATALOGUE, code
        self.status = status
        super().__init__(Diagnostic(code, message, hint=hint))


class ProgramError(SmileError):
    """Errors in the text of a program or a filter: all of them are reported, with their positions."""

    def __init__(self, problem: SmileError, source: Source) -> None:
        self.source = source
        super().__init__(problem.diagnostics)


class JsonResponse(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encode(content)


def http_status(problem: SmileError) -> int:
    if isinstance(problem, HttpError):
        return problem.status
    code = problem.diagnostics[0].code
    if isinstance(problem, ProgramError) and code < "E060":
        return 400  # an unknown name in a program is not an unknown path
    return _STATUS_BY_CODE.get(code) or (503 if code.startswith(_BROKER_FAULT_CODES) else 400)


def error_body(problem: SmileError) -> ErrorBody:
    """The first error, as the field `error` of a WebSocket message."""
    return diagnostic_body(problem.diagnostics[0], problem.source if isinstance(problem, ProgramError) else None)


def pause_body(pause: ViewPause | None) -> PauseBody | None:
    if pause is None:
        return None
    body = PauseBody(pause.code, replace_surrogates(pause.message), pause.since, pause.is_temporary)
    if pause.hint:
        body.hint = replace_surrogates(pause.hint)
    return body


def error_response(problem: SmileError) -> Response:
    status = http_status(problem)
    source = problem.source if isinstance(problem, ProgramError) else None
    body = FailureBody(diagnostic_body(problem.diagnostics[0], source))
    if source:
        body.errors = [diagnostic_body(d, source) for d in problem.diagnostics[: limits.errors_reported_max]]
    return JsonResponse(body, status, _ERROR_HEADERS.get(status))


def diagnostic_body(diagnostic: Diagnostic, source: Source | None) -> ErrorBody:
    body = ErrorBody(diagnostic.code, replace_surrogates(diagnostic.message))
    if diagnostic.hint:
        body.hint = replace_surrogates(diagnostic.hint)
    if source and diagnostic.span:
        body.line, body.col = source.line_col(diagnostic.span.start)
        body.length = diagnostic.span.end - diagnostic.span.start
    if diagnostic.event is not None:
        body.event = diagnostic.event
    if diagnostic.column is not None:
        body.column = replace_surrogates(diagnostic.column)
    return body


def replace_surrogates(text: str) -> str:
    """Text that can be sent: surrogates, which JSON can express and UTF-8 cannot, are replaced."""
    return text if text.isascii() else text.encode(errors="replace").decode()
