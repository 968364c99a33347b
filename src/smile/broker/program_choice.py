"""Which program a broker runs when it starts: the stored one, unless another file is served now."""

from dataclasses import replace

from smile.broker.directory import BrokerDirectory, BrokerMetadata, source_digest
from smile.broker.network.descriptions import FetchDescription, FetchedDescriptions
from smile.errors import error
from smile.source import Source


def choose_program(
    directory: BrokerDirectory,
    stored: BrokerMetadata | None,
    source: Source | None,
    fetch_description: FetchDescription,
) -> tuple[BrokerMetadata, FetchedDescriptions]:
    """The program to run, with the types of what it imports; and what its brokers have answered. Types may be missing,
    because brokers cannot be reached. Raises the errors with which they have answered."""
    metadata = _stored_or_served(directory, stored, source)
    if stored is not None and metadata.program == stored.program:
        return metadata, FetchedDescriptions(metadata.imports, has_run=True)
    fetched = metadata.imports.fetch(metadata.program, fetch_description)
    if fetched.refusals:
        fetched.require_all()
    return replace(metadata, imports=fetched.records), fetched


def _stored_or_served(
    directory: BrokerDirectory, metadata: BrokerMetadata | None, source: Source | None
) -> BrokerMetadata:
    if source is None:
        if metadata is None:
            hint = "Name one: smile serve PROGRAM."
            raise error("E105", f"{directory.path} has no program", hint=hint)
        return metadata
    if metadata is None:
        return BrokerMetadata(source, source_digest(source))
    if metadata.served == source_digest(source):
        return metadata
    return replace(metadata, program=source, served=source_digest(source))


def describe_choice(stored: BrokerMetadata | None, source: Source | None) -> str:
    """Which program runs, and why, if another one ran before."""
    if stored is None or source is None or stored.program.text == source.text:
        return ""
    if stored.served == source_digest(source):
        return (
            f"not {source.name}, but the program that `smile apply` has set: {source.name} has not changed since it "
            f"was last served. To run it again: smile apply {source.name}"
        )
    return f"{source.name} replaces the program that ran before, because the file has changed since it was last served"
