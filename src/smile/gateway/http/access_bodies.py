"""The JSON bodies and queries of tokens and grants."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from smile import limits
from smile.gateway.access import Right
from smile.gateway.http.bodies import Count

Name = Annotated[str, Meta(min_length=1, max_length=limits.principal_chars_max)]

_FORCE = "Also if nobody can administer the broker afterwards."


class GrantedRightBody(Struct):
    right: Right
    name: str


class PrincipalBody(Struct):
    """A user or service. Tokens cannot be shown: only their hashes are stored."""

    name: str
    tokens: Annotated[Count, Meta(description="How many tokens it has.")]
    grants: list[GrantedRightBody]


class AccessBody(Struct):
    """Who may do what."""

    tokens_required: Annotated[bool, Meta(description="If not, every caller may do everything.")]
    caller: Annotated[str, Meta(description="The principal that asks.")]
    principals: list[PrincipalBody]


class NewTokenBody(Struct, forbid_unknown_fields=True):
    principal: Name


class TokenBody(Struct):
    principal: str
    token: Annotated[str, Meta(description="It is shown only here: the broker stores its hash.")]


class RevokedTokensBody(Struct):
    principal: str
    revoked: Count


class GrantBody(Struct, forbid_unknown_fields=True):
    right: Right
    name: Annotated[Name, Meta(description="A stream, a view, or * for all; for ADMIN and QUERY it is program.")]
    principal: Name


class GrantedBody(Struct):
    """`changed`: it was not so before."""

    right: Right
    name: str
    principal: str
    changed: bool


class RevokeTokensQuery(Struct):
    force: Annotated[Literal["true", "false"], Meta(description=_FORCE)] = "false"


class RevokeQuery(Struct):
    """Which right is revoked: all three are needed."""

    right: Annotated[Right, Meta(description="The right.")]
    name: Annotated[str, Meta(description="What it was granted on.")]
    principal: Annotated[str, Meta(description="Whose right it is.")]
    force: Annotated[Literal["true", "false"], Meta(description=_FORCE)] = "false"
