"""What other brokers may import: the description of a relation, with which a program that imports it is compiled."""

from starlette.requests import Request
from starlette.responses import Response

from smile.gateway.access import Right
from smile.gateway.gateway import Gateway
from smile.gateway.http.bodies import NoQuery
from smile.gateway.http.request import parse_query
from smile.gateway.http.response import JsonResponse


async def describe(gateway: Gateway, request: Request) -> Response:
    """The definition and the type of a stream or view, for brokers that import it."""
    relation = request.path_params["relation"]
    gateway.require(request.user, Right.subscribe, relation)
    parse_query(request, NoQuery)
    return JsonResponse(await gateway.run_in_thread(lambda: gateway.broker.describe_export(relation)))
