"""Dead letters of connectors over HTTP: the list, to retry one, and to drop one."""

import logging

from starlette.requests import Request
from starlette.responses import Response

from smile import limits
from smile.broker.dead_letters import DeadLetter, DeadLetterOffice
from smile.errors import error
from smile.gateway.access import Right
from smile.gateway.gateway import Gateway
from smile.gateway.http.bodies import (
    DeadLetterBody,
    DeadLettersBody,
    DeadLettersQuery,
    DroppedLetterBody,
    NoQuery,
    RetriedLetterBody,
)
from smile.gateway.http.request import parse_count, parse_query
from smile.gateway.http.response import JsonResponse, replace_surrogates

logger = logging.getLogger("smile.gateway")


async def list_letters(gateway: Gateway, request: Request) -> Response:
    """Events that streams have refused and rows that receivers have refused, with the reasons, the oldest first."""
    gateway.require(request.user, Right.admin)
    after = parse_count(parse_query(request, DeadLettersQuery).get("after", "0"), "after", limits.sequence_max)
    office = gateway.broker.dead_letters
    if office is None:
        return JsonResponse(DeadLettersBody([], None))
    letters = await gateway.run_in_thread(lambda: office.list_letters(after, limits.dead_letters_listed_max))
    next_ = letters[-1].id if len(letters) == limits.dead_letters_listed_max else None
    return JsonResponse(DeadLettersBody([_body(letter) for letter in letters], next_))


async def retry_letter(gateway: Gateway, request: Request) -> Response:
    """Publish the event again, or post the row with what is known of it now. The letter is gone then."""
    office, id_ = _office(gateway, request)
    await gateway.run_in_thread(lambda: office.retry_letter(id_))
    logger.info("a dead letter is retried", extra={"letter": id_, "principal": request.user.principal})
    return JsonResponse(RetriedLetterBody(id_))


async def drop_letter(gateway: Gateway, request: Request) -> Response:
    """Forget the event or row for good."""
    office, id_ = _office(gateway, request)
    await gateway.run_in_thread(lambda: office.drop_letter(id_))
    logger.info("a dead letter is dropped", extra={"letter": id_, "principal": request.user.principal})
    return JsonResponse(DroppedLetterBody(id_))


def _office(gateway: Gateway, request: Request) -> tuple[DeadLetterOffice, int]:
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    id_ = parse_count(request.path_params["letter"], "letter", limits.sequence_max)
    office = gateway.broker.dead_letters
    if office is None:
        raise error("E208", f"there is no dead letter {id_}", hint="The broker has no connectors.")
    return office, id_


def _body(letter: DeadLetter) -> DeadLetterBody:
    return DeadLetterBody(
        letter.id,
        letter.connector,
        replace_surrogates(letter.subject),
        "csv" if letter.format == "csv" else "json",
        replace_surrogates(letter.body),
        letter.code,
        replace_surrogates(letter.message),
        letter.at_us / 1e6,
    )
