"""Generates the OpenAPI 3.1 description of the HTTP interface from its operations and the types of their messages."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from smile import __version__
from smile.gateway.http.bodies import FailureBody, NoQuery

Json = dict[str, Any]

Content = Mapping[str, Any]
"""By content type, the type of the message; None for binary data."""

JSON: Final = "application/json"

_ERRORS: Final = {
    400: "The request is wrong.",
    401: "A token is needed, or the one given is not known.",
    403: "The right was not granted, or pages of this origin may not call.",
    404: "There is no such stream or view.",
    405: "The path does not have this method.",
    406: "There is no such format.",
    408: "The request took too long to arrive.",
    409: "A conflict with existing data: a sequence number, a tick, or a program that cannot change this way.",
    410: "The view has ended, or the log no longer has all events.",
    413: "The request or its result is too large.",
    415: "Events cannot be read from this content type.",
    426: "Only a WebSocket is served here.",
    429: "Too many requests or events per second.",
    431: "The headers are too large.",
    503: "The broker has reached a limit, is stopping, or has failed.",
    504: "The view did not reach the ticks in time.",
}
_COMMON_ERRORS: Final = (400, 403, 405, 408, 431, 503)
_TOKEN_ERRORS: Final = (401, 429)


@dataclass(frozen=True)
class Operation:
    """A method on a path: the handler of its requests, and their description. A public operation needs no token.
    `errors` are the statuses of errors besides those that every operation has."""

    method: str
    path: str
    id: str
    handler: Callable[..., Any]
    """Its docstring is the summary."""
    response: Content
    status: int = 200
    errors: tuple[int, ...] = ()
    query: type[msgspec.Struct] = NoQuery
    headers: type[msgspec.Struct] = NoQuery
    body: Content = field(default_factory=dict)
    is_body_required: bool = True
    is_public: bool = False
    other_responses: Mapping[int, tuple[str, Content]] = field(default_factory=dict)


def openapi_document(operations: Iterable[Operation]) -> Json:
    """The OpenAPI document of these operations."""
    operations = list(operations)
    contents = [c for o in operations for c in (o.response, o.body)]
    types = list(dict.fromkeys([FailureBody, *(t for c in contents for t in c.values() if t is not None)]))
    described, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schemas: dict[Any, Json] = {None: {}} | {t: {"schema": schema} for t, schema in zip(types, described, strict=True)}
    paths: dict[str, Json] = {}
    for operation in operations:
        path = paths.setdefault(operation.path, {})
        path[operation.method.lower()] = _describe_operation(operation, schemas)
        if "{" in operation.path:
            path["parameters"] = [_path_parameter(operation.path)]
    return {
        "openapi": "3.1.0",
        "info": {"title": "SMILE", "version": __version__, "description": "A stateful publish/subscribe broker."},
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _describe_operation(operation: Operation, schemas: Mapping[Any, Json]) -> Json:
    def content(types: Content) -> Json:
        return {"content": {name: schemas[type_] for name, type_ in types.items()}} if types else {}

    errors = {*_COMMON_ERRORS, *(() if operation.is_public else _TOKEN_ERRORS), *operation.errors}
    responses = {operation.status: ("Done.", operation.response)}
    responses |= {status: (_ERRORS[status], {JSON: FailureBody}) for status in sorted(errors)}
    responses |= operation.other_responses
    description: Json = {
        "operationId": operation.id,
        "summary": " ".join((operation.handler.__doc__ or "").split()),
        "parameters": [*_parameters(operation.query, "query"), *_parameters(operation.headers, "header")],
        "responses": {str(status): {"description": text, **content(c)} for status, (text, c) in responses.items()},
    }
    if operation.body:
        description["requestBody"] = {"required": operation.is_body_required, **content(operation.body)}
    if operation.is_public and 401 not in operation.errors:
        description["security"] = []
    return description


def _parameters(type_: type[msgspec.Struct], place: str) -> list[Json]:
    schema = msgspec.json.schema(type_)["$defs"][type_.__name__]
    return [
        {"name": name, "in": place, "description": field.pop("description"), "schema": field}
        for name, field in schema["properties"].items()
    ]


def _path_parameter(path: str) -> Json:
    kind = path.partition("{")[2].partition("}")[0]
    schema = {"type": "string", "minLength": 1, "pattern": "^[^/]+$"}
    return {"name": kind, "in": "path", "required": True, "description": f"The {kind}'s name.", "schema": schema}
