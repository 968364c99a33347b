"""What a transform must keep in its state and until when, and why state can grow without bound."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from smile.knowledge.aggregate_types import value_count
from smile.knowledge.seals import Seal
from smile.knowledge.types import RelationType


@dataclass(frozen=True)
class UnboundedState:
    """The column whose values accumulate, why none of them can be dropped, and what would change that."""

    column: str
    reason: str
    remedy: str


@dataclass(frozen=True)
class StateRetention:
    """`unbounded` is None if the state is bounded by live data, or by the state of another transform."""

    description: str
    until: str
    unbounded: UnboundedState | None = None


def unbounded_columns(type_: RelationType, columns: Sequence[str], stream: str) -> UnboundedState | None:
    """Why the values of these columns accumulate; None if there is a finite number of them."""
    for column in columns:
        if not value_count(type_.columns[column]).is_finite:
            reason = f"{stream} may have one more event for any {column} at any time"
            remedy = f"Group by a window as well, give {column} a domain with bounds, or use LAST"
            return UnboundedState(column, reason, remedy)
    return None


def has_open_seal(seals: Mapping[str, Seal]) -> bool:
    """Whether some stream can affect rows at any time: a row is never sealed."""
    return any(s.is_never for s in seals.values())


def unsealed_stream(seals: Mapping[str, Seal]) -> str:
    return next((s for s, seal in seals.items() if seal.is_never), next(iter(seals), ""))


def seal_condition(seals: Mapping[str, Seal]) -> str:
    return " and ".join(f"the horizon of {s} reaches {seal}" for s, seal in seals.items())


def format_columns(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def of_each(per: Sequence[str]) -> str:
    """A phrase for rows that are kept by group; empty if there is only one group."""
    return f" of each {format_columns(per)}" if per else ""
