"""Hard checkpoints of all partitions of a program: versions that are pinned, flushed to the disk and read back."""

from collections.abc import Iterable, Mapping, Sequence

from smile.state.run import TableSchema
from smile.state.store import StateStore, VersionId


def finish_hard_checkpoint(
    partitions: Sequence[tuple[StateStore, Mapping[str, TableSchema]]], version_id: VersionId
) -> Mapping[str, int]:
    """Flushes a version that is pinned in the stores of all partitions. Returns the horizons of the oldest version that
    is still needed.

    That is the previous hard checkpoint, retained in case this one is damaged later; without one, the oldest version
    there is. May run in another thread, with stores of its own."""
    stores = [store for store, _ in partitions]
    for store, schemas in partitions:
        store.harden(version_id, schemas)
    previous = [checkpoint for checkpoint in common_hard_checkpoints(stores) if checkpoint < version_id]
    oldest = max(previous, default=None) or min(common_versions(stores))
    for store in stores:
        store.unpin_before(oldest)
    return stores[0].horizons(oldest)


def common_versions(stores: Iterable[StateStore]) -> set[VersionId]:
    """Versions that are complete in all partitions."""
    return set[VersionId].intersection(*(store.versions() for store in stores))


def common_hard_checkpoints(stores: Iterable[StateStore]) -> set[VersionId]:
    return set[VersionId].intersection(*(store.hard_checkpoints() & store.versions() for store in stores))
