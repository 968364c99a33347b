"""docs/reference/http.md: the HTTP operations with their parameters, from the OpenAPI document."""

from typing import Any

from smile.gateway.http.operations import document
from tools.reference.markdown import code, page, table

INTRODUCTION = """
`GET /openapi.json` of a broker has all of this for tools, with the types of bodies. [The interface](../interface.md)
explains it, and describes WebSocket, server-sent events and Arrow Flight.
"""


def http_page() -> str:
    operations = [
        (f"{method.upper()} {path}", item.get("parameters", []), operation)
        for path, item in document()["paths"].items()
        for method, operation in item.items()
        if method != "parameters"
    ]
    return page("HTTP", INTRODUCTION, *(_section(*operation) for operation in operations))


def _section(name: str, path_parameters: list[Any], operation: dict[str, Any]) -> str:
    parts = [f"## {name}", operation["summary"]]
    parameters = [*path_parameters, *operation["parameters"]]
    if parameters:
        rows = [[code(p["name"]), p["in"], _type(p["schema"]), p["description"]] for p in parameters]
        parts.append(table(["parameter", "in", "type", "meaning"], rows))
    body = operation.get("requestBody", {}).get("content", {})
    if body:
        parts.append(f"Body: {', '.join(map(code, body))}.")
    answers = [
        f"{status} ({', '.join(map(code, response.get('content', {}))) or 'no body'})"
        for status, response in operation["responses"].items()
        if int(status) < 400
    ]
    errors = [status for status in operation["responses"] if int(status) >= 400]
    parts.append(f"Answers: {', '.join(answers)}. Errors: {', '.join(errors)}.")
    return "\n\n".join(parts)


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(choice) for choice in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(str(choice) for choice in schema["enum"])
    return str(schema.get("type", ""))
