"""What neighbours may do, by the grants: to import a relation is to subscribe to it, and to be an origin of a stream is
to publish to it."""

from smile.gateway.access import Access, Right


class GrantedLinkAccess:
    def __init__(self, access: Access) -> None:
        self._access = access

    def can_import(self, principal: str, relation: str) -> bool:
        return self._access.is_allowed(principal, Right.subscribe, relation)

    def can_publish(self, principal: str, stream: str) -> bool:
        return self._access.is_allowed(principal, Right.publish, stream)

    def can_act_as(self, principal: str, broker: str) -> bool:
        """A broker calls as the principal of its own name."""
        return principal == broker
