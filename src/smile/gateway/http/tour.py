"""The tour that the console shows: the steps of the file that the setting `tour` names."""

from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from smile.errors import error
from smile.gateway.gateway import Gateway
from smile.gateway.http.bodies import NoQuery, TourBody
from smile.gateway.http.request import parse_query
from smile.gateway.http.response import JsonResponse


async def show_tour(gateway: Gateway, request: Request) -> Response:
    """The steps of the tour; none if the broker has no tour."""
    parse_query(request, NoQuery)
    path = gateway.settings.tour
    return JsonResponse(await gateway.run_in_thread(lambda: _read_tour(path)) if path else TourBody())


def _read_tour(path: str) -> TourBody:
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=TourBody)
    except (OSError, msgspec.MsgspecError) as problem:
        hint = "The setting tour names a JSON file with a title and steps."
        raise error("E195", f"the tour cannot be read: {problem}", hint=hint) from None
