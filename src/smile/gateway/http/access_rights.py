"""Tokens and grants: shows who may do what, creates and revokes tokens, grants and revokes rights.

All of it needs ADMIN. A token is in one message only, the answer to its creation: never in an address, a list or a log.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from smile.errors import error
from smile.gateway.access import AccessDatabase, Grant, LastAdministratorError, Right
from smile.gateway.client_messages import decode_body
from smile.gateway.gateway import Gateway
from smile.gateway.http.access_bodies import (
    AccessBody,
    GrantBody,
    GrantedBody,
    GrantedRightBody,
    NewTokenBody,
    PrincipalBody,
    RevokedTokensBody,
    RevokeQuery,
    RevokeTokensQuery,
    TokenBody,
)
from smile.gateway.http.bodies import NoQuery
from smile.gateway.http.request import parse_query, read_body
from smile.gateway.http.response import HttpError, JsonResponse

T = TypeVar("T")

logger = logging.getLogger("smile.gateway.access")


async def show_access(gateway: Gateway, request: Request) -> Response:
    """The principals, how many tokens each has, and its grants. Tokens and their hashes are not shown."""
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    if not gateway.access.requires_tokens:
        return JsonResponse(AccessBody(False, request.user.principal, []))
    entries = await _use_database(gateway, lambda database: database.read_entries())
    owners = list(entries.tokens.values())
    names = sorted({*owners, *(grant.principal for grant in entries.grants)})
    grants = {name: sorted(grant for grant in entries.grants if grant.principal == name) for name in names}
    principals = [
        PrincipalBody(name, owners.count(name), [GrantedRightBody(Right(g.right), g.name) for g in grants[name]])
        for name in names
    ]
    return JsonResponse(AccessBody(True, request.user.principal, principals))


async def create_token(gateway: Gateway, request: Request) -> Response:
    """Create a token of a principal, besides those that it has. It is shown only once."""
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    body = decode_body(await read_body(request, gateway.settings.message_bytes_max), NewTokenBody)
    token = await _use_database(gateway, lambda database: database.add_token(body.principal))
    _log("a token was created", request, of=body.principal)
    return JsonResponse(TokenBody(body.principal, token), 201)


async def revoke_tokens(gateway: Gateway, request: Request) -> Response:
    """Revoke all tokens of a principal: its connections end."""
    gateway.require(request.user, Right.admin)
    keeps_administrator = not _parse_force(parse_query(request, RevokeTokensQuery))
    name = request.path_params["principal"]
    count = await _use_database(gateway, lambda database: database.revoke_tokens(name, keeps_administrator))
    _log("tokens were revoked", request, of=name)
    return JsonResponse(RevokedTokensBody(name, count))


async def grant(gateway: Gateway, request: Request) -> Response:
    """Give a principal a right on a stream, a view or the program."""
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    body = decode_body(await read_body(request, gateway.settings.message_bytes_max), GrantBody)
    given = Grant(body.right, body.name, body.principal)
    is_new = await _use_database(gateway, lambda database: database.grant(given))
    _log("a right was granted", request, of=body.principal, right=str(body.right), relation=body.name)
    return JsonResponse(GrantedBody(body.right, body.name, body.principal, is_new))


async def revoke(gateway: Gateway, request: Request) -> Response:
    """Revoke a right: the subscriptions that need it end."""
    gateway.require(request.user, Right.admin)
    query = parse_query(request, RevokeQuery)
    keeps_administrator = not _parse_force(query)
    if missing := [name for name in ("right", "name", "principal") if not query.get(name)]:
        raise error("E093", f"the parameter {missing[0]} is missing")
    if query["right"] not in (*Right,):
        raise error("E093", f"there is no right {query['right'][:100]!r}", hint=f"There are {', '.join(Right)}.")
    revoked = Grant(query["right"], query["name"], query["principal"])
    was_granted = await _use_database(gateway, lambda database: database.revoke(revoked, keeps_administrator))
    _log("a right was revoked", request, of=revoked.principal, right=revoked.right, relation=revoked.name)
    return JsonResponse(GrantedBody(Right(revoked.right), revoked.name, revoked.principal, was_granted))


async def _use_database(gateway: Gateway, function: Callable[[AccessDatabase], T]) -> T:
    if not gateway.access.requires_tokens:
        hint = "Start it with the setting auth. `smile token` and `smile grant` prepare tokens and rights for then."
        raise HttpError(409, "E093", "this broker requires no tokens", hint)

    def use() -> T:
        with gateway.access.open_database() as database:
            return function(database)

    try:
        return await gateway.run_in_thread(use)
    except LastAdministratorError as problem:
        hint = "Give another principal ADMIN ON program and a token first, or send force=true."
        raise HttpError(409, "E093", problem.message, hint) from None


def _parse_force(query: dict[str, str]) -> bool:
    force = query.get("force", "false")
    if force not in ("true", "false"):
        raise error("E093", f"force: {force[:100]!r} is neither true nor false")
    return force == "true"


def _log(message: str, request: Request, **fields: str) -> None:
    logger.info(message, extra={"principal": request.user.principal, **fields})
