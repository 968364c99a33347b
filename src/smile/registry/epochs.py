"""Closed epochs of a global stream: who publishes it up to a tick, and nobody else.

A broker declares an epoch with the members that it knows. Each member confirms it: it has told which producers it has,
and adds no other one at or below the tick. When all members have confirmed, whoever has all that they publish up to a
tick of the epoch has everything: with respect to this epoch, it is final.

Invariant: a member confirms an epoch only if it follows the one that it has confirmed before. So of two epochs that
contradict each other and have a member in common, at most one is ever confirmed by all.
"""

import hashlib
from collections.abc import Iterable
from functools import cached_property

import msgspec

from smile.horizons import END, HORIZON_MIN


class EpochMember(msgspec.Struct, frozen=True, order=True):
    """A broker with producers: the number of its origin, its name, and what identifies its log."""

    origin: str
    host: str
    log: str


class ClosedEpoch(msgspec.Struct, frozen=True, dict=True):
    """The `members` publish `relation` up to tick `closed_to`, and nobody else. END: for good."""

    relation: str
    closed_to: int
    members: tuple[EpochMember, ...]

    @cached_property
    def digest(self) -> str:
        """Identifies the epoch."""
        return hashlib.sha256(self.encode()).hexdigest()[:12]

    @property
    def is_for_good(self) -> bool:
        return self.closed_to == END

    def follows(self, earlier: "ClosedEpoch | None") -> bool:
        """Whether it is closed further than an earlier one, whose members all publish still."""
        if earlier is None:
            return True
        return self.closed_to > earlier.closed_to and {*self.members} >= {*earlier.members}

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @staticmethod
    def create(relation: str, closed_to: int, members: Iterable[EpochMember]) -> "ClosedEpoch":
        return ClosedEpoch(relation, closed_to, tuple(sorted(members)))

    @staticmethod
    def decode(text: str) -> "ClosedEpoch | None":
        """None if it is none: what neighbours send is not trusted."""
        try:
            epoch = msgspec.json.decode(text, type=ClosedEpoch)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        is_valid = HORIZON_MIN < epoch.closed_to <= END and epoch.members
        return epoch if is_valid and epoch.members == tuple(sorted({*epoch.members})) else None


def number_order(member: EpochMember, begins: int, epochs: Iterable[ClosedEpoch]) -> tuple[bool, int, str]:
    """Of the brokers that claim one number, the least one in this order has it: a member of one of the epochs, then who
    has published first. So a newcomer displaces nobody. `begins` is the tick below which a broker has published
    nothing, HORIZON_MIN if it has published nothing at all."""
    is_member = any(member in epoch.members for epoch in epochs)
    return not is_member, END if begins == HORIZON_MIN else begins, member.host


class MemberClaim(msgspec.Struct, frozen=True):
    """What a broker says of itself in a global stream. `confirmed` is the digest of the epoch that it has confirmed
    last. It has published nothing at or below tick `begins`. `has_all_producers`: all of its producers are known
    here."""

    member: EpochMember
    confirmed: str = ""
    begins: int = HORIZON_MIN
    has_all_producers: bool = True


def missing_members(epoch: ClosedEpoch, claims: Iterable[MemberClaim]) -> list[EpochMember]:
    """The members that have not confirmed the epoch yet, as far as it is known here."""
    confirmed = {c.member for c in claims if c.confirmed == epoch.digest and c.has_all_producers}
    return [member for member in epoch.members if member not in confirmed]


def is_stranger(epoch: ClosedEpoch, claim: MemberClaim) -> bool:
    """Whether a broker that is no member may have published something up to the end of the epoch."""
    return claim.member not in epoch.members and claim.begins < epoch.closed_to


def choose_epoch(
    adopted: ClosedEpoch | None, declared: Iterable[ClosedEpoch], claims: Iterable[MemberClaim]
) -> ClosedEpoch | None:
    """The epoch with respect to which things are final here: the one that was `adopted`, or a later one that does not
    contradict it and that all of its members have confirmed."""
    claims = list(claims)
    usable = [
        epoch
        for epoch in declared
        if epoch.follows(adopted)
        and not missing_members(epoch, claims)
        and not _admits_strangers(epoch, adopted, claims)
    ]
    return max(usable, key=lambda epoch: (epoch.closed_to, epoch.digest), default=adopted)


def _admits_strangers(epoch: ClosedEpoch, adopted: ClosedEpoch | None, claims: Iterable[MemberClaim]) -> bool:
    """Whether it has members whose events were left out of the adopted epoch."""
    return adopted is not None and any(is_stranger(adopted, c) for c in claims if c.member in epoch.members)
