"""The publish/subscribe statements. Expressions are not parsed: they are kept as ranges of the query text."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from smile.source import Span

Visibility = Literal["immediate", "deferred"]
Reliability = Literal["guaranteed", "non-guaranteed"]
RuleOperation = Literal["insert", "update", "delete"]
Scope = Literal["local", "global"]
Privilege = Literal["publish", "subscribe"]


@dataclass(frozen=True)
class SqlName:
    """A name without its quotes, as it was written: case is kept."""

    text: str
    span: Span
    is_quoted: bool = False

    def folded(self) -> str:
        """What PostgreSQL takes the name for."""
        return self.text if self.is_quoted else self.text.lower()


@dataclass(frozen=True)
class LinkValue:
    """A part of an address or of credentials: text, or a parameter such as $1."""

    text: str
    span: Span
    is_parameter: bool = False


@dataclass(frozen=True)
class PublicationCall:
    """What PUBLISH and rules have in common. `arguments` is None if there are none."""

    event_type: SqlName
    arguments: Span | None
    visibility: Visibility = "deferred"
    reliability: Reliability = "guaranteed"


@dataclass(frozen=True)
class PubSubStatement:
    """A statement of this grammar. `tag` is what PostgreSQL would report when it is completed."""

    tag: ClassVar[str]


@dataclass(frozen=True)
class CreateEventType(PubSubStatement):
    tag = "CREATE EVENT TYPE"
    name: SqlName
    columns: Span


@dataclass(frozen=True)
class DropEventType(PubSubStatement):
    tag = "DROP EVENT TYPE"
    name: SqlName


@dataclass(frozen=True)
class AlterQueue(PubSubStatement):
    tag = "ALTER QUEUE"
    queue: SqlName
    auditable: bool


@dataclass(frozen=True)
class Advertise(PubSubStatement):
    tag = "ADVERTISE"
    event_type: SqlName


@dataclass(frozen=True)
class DropAdvertisement(PubSubStatement):
    tag = "DROP ADVERTISEMENT"
    event_type: SqlName


@dataclass(frozen=True)
class Publish(PubSubStatement):
    tag = "PUBLISH"
    call: PublicationCall


@dataclass(frozen=True)
class CreateRule(PubSubStatement):
    tag = "CREATE RULE"
    name: SqlName
    operation: RuleOperation
    table: Span
    condition: Span | None
    call: PublicationCall


@dataclass(frozen=True)
class DropRule(PubSubStatement):
    tag = "DROP RULE"
    name: SqlName
    table: Span


@dataclass(frozen=True)
class CreateSubscription(PubSubStatement):
    tag = "CREATE SUBSCRIPTION"
    name: SqlName
    event_type: SqlName
    scope: Scope | None
    filter: Span | None
    function: Span
    arguments: Span | None
    priority: Span | None


@dataclass(frozen=True)
class DropSubscription(PubSubStatement):
    tag = "DROP SUBSCRIPTION"
    name: SqlName


@dataclass(frozen=True)
class CreateLink(PubSubStatement):
    tag = "CREATE LINK"
    name: SqlName
    address: LinkValue
    port: LinkValue
    user: LinkValue
    password: LinkValue


@dataclass(frozen=True)
class DropLink(PubSubStatement):
    tag = "DROP LINK"
    name: SqlName


@dataclass(frozen=True)
class GrantPrivilege(PubSubStatement):
    tag = "GRANT"
    privilege: Privilege
    event_type: SqlName
    role: SqlName


@dataclass(frozen=True)
class RevokePrivilege(PubSubStatement):
    tag = "REVOKE"
    privilege: Privilege
    event_type: SqlName
    role: SqlName


@dataclass(frozen=True)
class CreateTableStream(PubSubStatement):
    tag = "CREATE STREAM"
    name: SqlName
    table: Span


@dataclass(frozen=True)
class DropTableStream(PubSubStatement):
    tag = "DROP STREAM"
    name: SqlName


@dataclass(frozen=True)
class CreateViewTable(PubSubStatement):
    tag = "CREATE TABLE"
    table: Span
    view: SqlName
    with_knowledge: bool


@dataclass(frozen=True)
class DropViewTable(PubSubStatement):
    tag = "DROP TABLE"
    table: Span
