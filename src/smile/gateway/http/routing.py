"""Advertisements of streams, and the links of the broker: to show them, and to change them."""

import logging

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from smile.errors import error
from smile.gateway.access import Right
from smile.gateway.client_messages import decode_body
from smile.gateway.gateway import Gateway
from smile.gateway.http.bodies import (
    AdvertiseBody,
    AdvertisementBody,
    AdvertisementsBody,
    CloseBody,
    LinkBody,
    LinkRequestBody,
    LinksBody,
    NoQuery,
    RegistryBody,
    RegistryExplanationBody,
    RoutedSubscriptionBody,
    UnadvertiseQuery,
)
from smile.gateway.http.request import parse_query, read_body
from smile.gateway.http.response import JsonResponse
from smile.horizons import END

logger = logging.getLogger("smile.gateway")


async def show_advertisements(gateway: Gateway, request: Request) -> Response:
    """The advertised streams that this broker knows, and the global subscriptions, with where they came from."""
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    return await _report(gateway)


async def advertise(gateway: Gateway, request: Request) -> Response:
    """Advertise a stream of this broker to its neighbours, with a condition if only some of its events are for them; or
    a producer of a global stream."""
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    stream = request.path_params["stream"]
    content = await read_body(request, gateway.settings.message_bytes_max)
    body = decode_body(content, AdvertiseBody)
    known, where, producer = gateway.broker.routing, body.where or "", body.producer
    await gateway.run_in_thread(
        lambda: known.advertise(stream, where) if producer is None else known.add_producer(producer, stream, where)
    )
    logger.info("a stream is advertised", extra={"stream": stream, "principal": request.user.principal})
    return await _report(gateway)


async def unadvertise(gateway: Gateway, request: Request) -> Response:
    """Take the advertisement of a stream back: neighbours receive nothing more of it as a global stream. Or withdraw a
    producer."""
    gateway.require(request.user, Right.admin)
    producer = parse_query(request, UnadvertiseQuery).get("producer")
    stream, known = request.path_params["stream"], gateway.broker.routing
    await gateway.run_in_thread(
        lambda: known.unadvertise(stream) if producer is None else known.remove_producer(producer)
    )
    logger.info("a stream is no longer advertised", extra={"stream": stream, "principal": request.user.principal})
    return await _report(gateway)


async def _report(gateway: Gateway) -> Response:
    status = await gateway.run_in_thread(gateway.broker.routing.status)
    return JsonResponse(
        AdvertisementsBody(
            [
                AdvertisementBody(a["stream"], a["where"], a["from"], a["hosts"], a["reachable"], a["releases"])
                for a in status["advertisements"]
            ],
            [RoutedSubscriptionBody(s["stream"], s["where"], s["from"]) for s in status["routed_subscriptions"]],
        )
    )


async def show_registry(gateway: Gateway, request: Request) -> Response:
    """The global streams of this broker with their publishers, and the plans that run here."""
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    report = await gateway.run_in_thread(gateway.broker.global_imports.report)
    return JsonResponse(msgspec.convert(report, RegistryBody))


async def explain_registry(gateway: Gateway, request: Request) -> Response:
    """Why each publisher that is known is in the plans that run here or not, and the hierarchy of republishers."""
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    explanation = await gateway.run_in_thread(gateway.broker.global_imports.explain)
    return JsonResponse(msgspec.convert(explanation, RegistryExplanationBody))


async def close_stream(gateway: Gateway, request: Request) -> Response:
    """Close a global stream: nobody but the producers that are known publishes it up to a tick, or for good. What
    depends on it becomes final when all of their brokers have confirmed it, and are as far."""
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    stream = request.path_params["stream"]
    body = decode_body(await read_body(request, gateway.settings.message_bytes_max), CloseBody)
    closed_to = END if body.to is None else None if body.to == "now" else _parse_tick(body.to)
    await gateway.run_in_thread(lambda: gateway.broker.close_global_stream(stream, closed_to))
    logger.info("a global stream is closed", extra={"stream": stream, "principal": request.user.principal})
    report = await gateway.run_in_thread(gateway.broker.global_imports.report)
    return JsonResponse(msgspec.convert(report, RegistryBody))


def _parse_tick(text: int | str) -> int:
    try:
        tick = int(text)
    except ValueError:
        tick = -1
    if not 0 <= tick <= END:
        raise error("E093", f"{str(text)[:100]} is not a tick", hint="Write a tick, or now.")
    return tick


async def show_links(gateway: Gateway, request: Request) -> Response:
    """The neighbours that this broker calls. Tokens are not shown."""
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    return _links(gateway)


async def add_link(gateway: Gateway, request: Request) -> Response:
    """Add a link to a neighbour, or change one that was added. It is stored, and opened at once."""
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    link = request.path_params["link"]
    body = decode_body(await read_body(request, gateway.settings.message_bytes_max), LinkRequestBody)
    await gateway.run_in_thread(lambda: gateway.broker.links.add(link, body.url, body.token or "", body.ca or ""))
    logger.info("a link was added", extra={"link": link, "principal": request.user.principal})
    return _links(gateway)


async def drop_link(gateway: Gateway, request: Request) -> Response:
    """Drop a link that was added. Those of the settings cannot be dropped."""
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    link = request.path_params["link"]
    await gateway.run_in_thread(lambda: gateway.broker.links.drop(link))
    logger.info("a link was dropped", extra={"link": link, "principal": request.user.principal})
    return _links(gateway)


def _links(gateway: Gateway) -> Response:
    links = gateway.broker.links.status()
    return JsonResponse(LinksBody([LinkBody(**fields) for fields in links]))
