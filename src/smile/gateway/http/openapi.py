"""The OpenAPI 3.1 description of the HTTP interface: every path, parameter, body and response."""

from functools import cache
from typing import Any, Final

from smile import __version__, limits
from smile.gateway.http.publish import ARROW
from smile.gateway.http.request import HttpRequest
from smile.gateway.http.response import HttpResponse, encode
from smile.gateway.http.snapshots import CONTENT_TYPES
from smile.horizons import END, HORIZON_MIN

Json = dict[str, Any]

_TICK: Final[Json] = {
    "description": "A tick. Beyond 2^53 it is text, so that no digit is lost.",
    "oneOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]{1,19}$"}],
}
_TEXT: Final[Json] = {"schema": {"type": "string"}}
_BINARY: Final[Json] = {}
_REASONS: Final = {
    "400": "The request is wrong.",
    "401": "A token is needed, or the one given is not known.",
    "403": "The right was not granted, or pages of this origin may not call.",
    "404": "There is no such stream or view.",
    "405": "The path does not have this method.",
    "406": "There is no such format.",
    "408": "The request took too long to arrive.",
    "409": "A conflict with existing data: a sequence number, a tick, or a program that cannot change this way.",
    "410": "The view has ended, or the log no longer has all events.",
    "413": "The request or its result is too large.",
    "415": "Events cannot be read from this content type.",
    "426": "Only a WebSocket is served here.",
    "429": "Too many requests or events per second.",
    "431": "The headers are too large.",
    "503": "The broker has reached a limit, is stopping, or has failed.",
    "504": "The view did not reach the ticks in time.",
}
_DIFFERENCE_FIELDS: Final = ("added", "changed", "dropped", "unchanged", "streams_added", "streams_dropped")
_COMMON_STATUSES: Final = ("400", "403", "405", "408", "431", "503")
_TOKEN_STATUSES: Final = ("401", "429")


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _responses(
    content: Json, extra_statuses: tuple[str, ...] = (), status: str = "200", is_public: bool = False
) -> Json:
    responses = {status: {"description": "Done.", "content": content}}
    for code in sorted({*_COMMON_STATUSES, *(() if is_public else _TOKEN_STATUSES), *extra_statuses}):
        responses[code] = {"description": _REASONS[code], "content": {"application/json": {"schema": _ref("Failure")}}}
    return responses


def _json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}


def _name_parameter(kind: str) -> Json:
    return {
        "name": kind,
        "in": "path",
        "required": True,
        "description": f"The {kind}'s name.",
        "schema": {"type": "string", "minLength": 1, "pattern": "^[^/]+$"},
    }


def _query_parameter(name: str, schema: Json, description: str) -> Json:
    return {"name": name, "in": "query", "description": description, "schema": schema}


_CONDITIONS: Final[Json] = {
    "name": "conditions",
    "in": "query",
    "style": "form",
    "explode": True,
    "description": "`where.COLUMN=VALUE`: only rows that have this value; the column must be one that never changes in"
    " a row. `after.STREAM=TICK`: wait until the view includes everything up to this tick of the stream.",
    "schema": {
        "type": "object",
        "patternProperties": {
            r"^where\..+$": {"type": "string"},
            r"^after\..+$": {"type": "string", "pattern": f"^({HORIZON_MIN}|[0-9]{{1,18}}|[1-8][0-9]{{18}}|{END})$"},
        },
        "additionalProperties": False,
    },
}


def _publish() -> Json:
    header = {"in": "header", "required": False}
    events: Json = {
        "oneOf": [
            {"type": "object", "description": "An event: its columns and their values."},
            {"type": "array", "items": {"type": "object"}},
        ]
    }
    return {
        "post": {
            "operationId": "publish",
            "summary": "Publish events. They are on the disk when the response with their ticks is sent.",
            "parameters": [
                {
                    **header,
                    "name": "Smile-Producer",
                    "description": "The producer. With a sequence number, repeated events are not logged again.",
                    "schema": {"type": "string", "minLength": 1, "maxLength": limits.producer_chars_max},
                },
                {
                    **header,
                    "name": "Smile-Sequence",
                    "description": "The sequence number of the first event; the others have consecutive numbers.",
                    "schema": {"type": "integer", "minimum": 0, "maximum": limits.sequence_max},
                },
            ],
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {"schema": events},
                    "application/x-ndjson": _TEXT,
                    ARROW: _BINARY,
                },
            },
            "responses": _responses(_json(_ref("Published")), ("404", "409", "413", "415")),
        },
        "parameters": [_name_parameter("stream")],
    }


def _silence() -> Json:
    schema = {
        "type": "object",
        "required": ["to"],
        "properties": {"to": _ref("Tick")},
        "additionalProperties": False,
    }
    response = {"type": "object", "required": ["silent"], "properties": {"silent": _ref("Tick")}}
    return {
        "post": {
            "operationId": "silence",
            "summary": "Declare that nothing more happens up to a tick, in a stream whose publishers supply the ticks.",
            "requestBody": {"required": True, "content": _json(schema)},
            "responses": _responses(_json(response), ("404", "409", "413")),
        },
        "parameters": [_name_parameter("stream")],
    }


def _view() -> Json:
    wait = {"type": "integer", "minimum": 0, "maximum": limits.wait_ms_max, "default": limits.wait_ms_default}
    contents = {
        CONTENT_TYPES["json"]: {"schema": _ref("Snapshot")},
        CONTENT_TYPES["ndjson"]: _TEXT,
        CONTENT_TYPES["csv"]: _TEXT,
    }
    return {
        "get": {
            "operationId": "snapshot",
            "summary": "All rows that the view shows now.",
            "parameters": [
                _query_parameter(
                    "format", {"type": "string", "enum": list(CONTENT_TYPES)}, "Overrides the header Accept."
                ),
                _query_parameter("wait_ms", wait, "How long to wait for the ticks of `after.STREAM`."),
                _CONDITIONS,
            ],
            "responses": _responses({**contents, CONTENT_TYPES["arrow"]: _BINARY}, ("404", "406", "410", "413", "504")),
        },
        "delete": {
            "operationId": "dropView",
            "summary": "Drop the view from the program.",
            "responses": _responses(_json(_ref("Difference")), ("404", "409")),
        },
        "parameters": [_name_parameter("view")],
    }


def _changes() -> Json:
    event = {"type": "object", "properties": {name: {"type": "string"} for name in ("event", "id", "data")}}
    last_event_id: Json = {
        "name": "Last-Event-ID",
        "in": "header",
        "description": "As `resume`.",
        "schema": {"type": "string"},
    }
    return {
        "get": {
            "operationId": "changes",
            "summary": "The view's rows, then its changes, as server-sent events: reset, change, progress, end.",
            "parameters": [
                _query_parameter(
                    "resume", {"type": "string"}, "The id of the last progress event, to continue from there."
                ),
                last_event_id,
                _CONDITIONS,
            ],
            "responses": _responses({"text/event-stream": {"schema": event}}, ("404",)),
        },
        "parameters": [_name_parameter("view")],
    }


def _program() -> Json:
    form = _query_parameter(
        "format", {"type": "string", "enum": ["text", "json"], "default": "text"}, "The text, or a description."
    )
    dry_run = _query_parameter(
        "dry_run", {"type": "string", "enum": ["true", "false"], "default": "false"}, "Only return the difference."
    )
    content = {"text/plain": _TEXT, "text/x-mmpl": _TEXT, "application/json": {"schema": _ref("Program")}}
    return {
        "get": {
            "operationId": "program",
            "summary": "The current program.",
            "parameters": [form],
            "responses": _responses(content),
        },
        "put": {
            "operationId": "applyProgram",
            "summary": "Replace the current program. Answered when new and changed views have caught up.",
            "parameters": [dry_run],
            "requestBody": {"required": True, "content": {"text/plain": _TEXT, "text/x-mmpl": _TEXT}},
            "responses": _responses(_json(_ref("Difference")), ("409", "410", "413")),
        },
    }


def _views() -> Json:
    return {
        "post": {
            "operationId": "addView",
            "summary": "Add views to the program, and subscribe to them.",
            "requestBody": {"required": True, "content": {"text/plain": _TEXT}},
            "responses": _responses(_json(_ref("Difference")), ("409", "410", "413"), "201"),
        }
    }


def _get_operation(name: str, summary: str, content: Json, is_public: bool = False) -> Json:
    responses = _responses(content, is_public=is_public)
    if name == "health":
        responses["503"] = {"description": "The broker is not healthy.", "content": content}
    return {
        "get": {
            "operationId": name,
            "summary": summary,
            "responses": responses,
            **({"security": []} if is_public else {}),
        }
    }


def _websocket() -> Json:
    responses = _responses({}, ("401", "426"), "101", is_public=True)
    del responses["101"]["content"]
    summary = "A WebSocket: publish and subscribe on one connection, with one JSON object per message."
    return {"get": {"operationId": "webSocket", "summary": summary, "responses": responses}}


def _schemas() -> Json:
    return {**_data_schemas(), **_program_schemas()}


def _data_schemas() -> Json:
    """Schemas of events, rows and snapshots."""
    anything: Json = {"type": "object"}
    return {
        "Tick": _TICK,
        "Progress": {
            "type": "object",
            "description": "The tick of each stream up to which everything is known.",
            "additionalProperties": {
                "oneOf": [{"type": "integer", "minimum": -1}, {"type": "string", "pattern": "^[0-9]{1,19}$"}]
            },
        },
        "Published": {
            "type": "object",
            "required": ["ticks", "repeated"],
            "properties": {
                "ticks": {"type": "array", "items": _ref("Tick")},
                "repeated": {
                    "type": "integer",
                    "description": "How many of the events, the first ones, were already logged.",
                },
            },
        },
        "Row": {
            "type": "object",
            "description": "Everything that is known about a row now.",
            "required": ["view", "key", "row", "knowledge", "final", "steps"],
            "properties": {
                "view": {"type": "string"},
                "key": anything,
                "row": anything,
                "knowledge": {"type": "object", "additionalProperties": _ref("Knowledge")},
                "final": {"type": "boolean", "description": "The row will never change again."},
                "stays": {"type": "boolean", "description": "The row will always be shown."},
                "steps": {"type": "integer", "minimum": 0},
            },
        },
        "Knowledge": {
            "type": "object",
            "properties": {
                "exactly": {},
                "at_least": {},
                "at_most": {},
                "between": {"type": "array", "minItems": 2, "maxItems": 2},
                "latest": {},
                "at": _ref("Tick"),
                "unknown": {"const": True},
            },
            "additionalProperties": False,
        },
        "Snapshot": {
            "type": "object",
            "required": ["view", "rows", "progress", "resume"],
            "properties": {
                "view": {"type": "string"},
                "rows": {"type": "array", "items": _ref("Row")},
                "progress": _ref("Progress"),
                "resume": {
                    "type": ["string", "null"],
                    "description": "The token to subscribe to changes from here on.",
                },
            },
        },
    }


def _program_schemas() -> Json:
    """Schemas of programs and of errors."""
    names = {"type": "array", "items": {"type": "string"}}
    anything: Json = {"type": "object"}
    return {
        "Program": {
            "type": "object",
            "required": ["program", "streams", "views"],
            "properties": {"program": {"type": "string"}, "streams": anything, "views": anything},
        },
        "Difference": {
            "type": "object",
            "required": list(_DIFFERENCE_FIELDS),
            "properties": dict.fromkeys(_DIFFERENCE_FIELDS, names),
        },
        "Error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string", "pattern": "^[EW][0-9]{3}$"},
                "message": {"type": "string"},
                "hint": {"type": "string"},
                "line": {"type": "integer", "minimum": 1},
                "col": {"type": "integer", "minimum": 1},
                "length": {"type": "integer", "minimum": 0},
            },
        },
        "Failure": {
            "type": "object",
            "required": ["error"],
            "properties": {"error": _ref("Error"), "errors": {"type": "array", "items": _ref("Error")}},
        },
    }


@cache
def document() -> Json:
    health = {"type": "object", "required": ["health"], "properties": {"health": {"type": "string"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "SMILE", "version": __version__, "description": "A stateful publish/subscribe broker."},
        "security": [{"token": []}, {}],
        "paths": {
            "/streams/{stream}/events": _publish(),
            "/streams/{stream}/silence": _silence(),
            "/views": _views(),
            "/views/{view}": _view(),
            "/views/{view}/changes": _changes(),
            "/program": _program(),
            "/status": _get_operation("status", "The broker's status.", _json({"type": "object"})),
            "/metrics": _get_operation("metrics", "The same values for Prometheus.", {"text/plain": _TEXT}),
            "/health": _get_operation("health", "Whether the broker is healthy.", _json(health), is_public=True),
            "/openapi.json": _get_operation("openapi", "This document.", _json({"type": "object"}), is_public=True),
            "/ws": _websocket(),
        },
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


async def show_document(request: HttpRequest) -> HttpResponse:
    request.query(())
    return HttpResponse(encode(document()))
