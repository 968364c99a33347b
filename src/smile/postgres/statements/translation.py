"""Translates a publish/subscribe statement to a call of the function in the schema `smile` that has its meaning.

The values of a PUBLISH are copied as they were written: parameters keep their numbers and find their types.
Everything else that a statement contains is passed as a string.
"""

import re
from dataclasses import dataclass
from typing import Final

from smile.errors import Diagnostic
from smile.postgres.statements.nodes import (
    Advertise,
    AlterQueue,
    CreateEventType,
    CreateLink,
    CreateRule,
    CreateSubscription,
    CreateTableStream,
    CreateViewTable,
    DropAdvertisement,
    DropEventType,
    DropLink,
    DropRule,
    DropSubscription,
    DropTableStream,
    DropViewTable,
    GrantPrivilege,
    LinkValue,
    PublicationCall,
    Publish,
    PubSubStatement,
    RevokePrivilege,
    SqlName,
)
from smile.postgres.statements.positions import AssembledText, Piece, assemble, copied_piece
from smile.postgres.statements.splitter import SqlStatement
from smile.source import Span

SCHEMA = "smile"
EVENT_TYPES_HINT: Final = (
    f"{SCHEMA}.event_types lists the event types and their columns. A cast such as 0.5::numeric converts a value."
)


@dataclass(frozen=True)
class Translation:
    """The call is one SELECT, whose only row has no meaning. Its positions are those of the whole query text."""

    call: AssembledText
    tag: str
    event_type: SqlName | None = None
    """Of a PUBLISH: if its function does not exist, neither does the event type, or it has other columns."""

    @property
    def sql(self) -> str:
        return self.call.text


def refused_values(event_type: SqlName, server_message: str) -> Diagnostic:
    """The error of a PUBLISH whose function does not exist. The server's message has the types of the values."""
    types = re.search(r"\((.*?),? ?visibility => ", server_message)
    values = "such columns" if types is None else f"columns for the values ({types[1]})"
    message = f"there is no event type {event_type.text} with {values}"
    return Diagnostic("E158", message, event_type.span, EVENT_TYPES_HINT)


def translate_statement(node: PubSubStatement, statement: SqlStatement) -> Translation:
    """`statement` is where the node was parsed from."""
    text = statement.text
    if isinstance(node, Publish):
        return Translation(_publish(node.call, statement), node.tag, node.call.event_type)
    function, *arguments = _call(node, text)
    pieces = [Piece(f"SELECT {SCHEMA}.{function}(", statement.start)]
    for number, argument in enumerate(arguments):
        pieces.append(Piece(", " if number else "", statement.start))
        pieces.append(argument if isinstance(argument, Piece) else Piece(argument, statement.start))
    return Translation(assemble([*pieces, Piece(")", statement.start)]), node.tag)


def _publish(call: PublicationCall, statement: SqlStatement) -> AssembledText:
    name = call.event_type.span
    pieces = [
        Piece("SELECT ", statement.start),
        Piece(f"{SCHEMA}.{quote_identifier(f'publish_{call.event_type.text.lower()}')}(", name.start),
    ]
    if call.arguments is not None:
        pieces += [copied_piece(statement.text, call.arguments), Piece(", ", call.arguments.end)]
    modes = f"visibility => '{call.visibility}', reliability => '{call.reliability}')"
    return assemble([*pieces, Piece(modes, name.start)])


def _call(node: PubSubStatement, text: str) -> tuple[str | Piece, ...]:
    """The function and its arguments, as SQL."""
    match node:
        case CreateEventType(name, columns):
            return "create_event_type", _name(name), _text(text, columns)
        case DropEventType(name):
            return "drop_event_type", _name(name)
        case AlterQueue(queue, auditable):
            return "alter_queue", _name(queue), _boolean(auditable)
        case Advertise(event_type):
            return "advertise", _name(event_type)
        case DropAdvertisement(event_type):
            return "unadvertise", _name(event_type)
        case CreateRule(name, operation, table, condition, call):
            modes = (quote_literal(call.visibility), quote_literal(call.reliability))
            rule = (_name(name), quote_literal(operation), _text(text, table), _text(text, condition))
            return "create_rule", *rule, _name(call.event_type), _text(text, call.arguments, "''"), *modes
        case DropRule(name, table):
            return "drop_rule", _name(name), _text(text, table)
        case CreateSubscription(name, event_type, scope, condition, function, arguments, priority):
            head = (_name(name), _name(event_type), quote_literal(scope or "local"), _text(text, condition))
            execution = (_text(text, function), _text(text, arguments, "''"))
            return "create_subscription", *head, *execution, text[priority.start : priority.end] if priority else "0"
        case DropSubscription(name):
            return "drop_subscription", _name(name)
        case CreateLink(name, address, port, user, password):
            port_number = _link_value(port) if port.is_parameter else str(int(port.text))
            return (
                "create_link",
                _name(name),
                _link_value(address),
                port_number,
                _link_value(user),
                _link_value(password),
            )
        case DropLink(name):
            return "drop_link", _name(name)
        case GrantPrivilege(privilege, event_type, role):
            return '"grant"', quote_literal(privilege), _name(event_type), quote_literal(role.folded())
        case RevokePrivilege(privilege, event_type, role):
            return '"revoke"', quote_literal(privilege), _name(event_type), quote_literal(role.folded())
        case CreateTableStream(name, table):
            return "create_table_stream", _name(name), _text(text, table)
        case DropTableStream(name):
            return "drop_table_stream", _name(name)
        case CreateViewTable(table, view, with_knowledge):
            return "create_view_table", _text(text, table), _name(view), _boolean(with_knowledge)
        case DropViewTable(table):
            return "drop_view_table", _text(text, table)
    raise AssertionError(node)


def _name(name: SqlName) -> Piece:
    return Piece(quote_literal(name.text), name.span.start)


def _text(text: str, span: Span | None, absent: str = "NULL") -> str | Piece:
    """The text of the span as a string. Comments in it are part of it."""
    return absent if span is None else Piece(quote_literal(text[span.start : span.end]), span.start)


def _link_value(value: LinkValue) -> Piece:
    return Piece(value.text if value.is_parameter else quote_literal(value.text), value.span.start)


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def quote_literal(text: str) -> str:
    """A string that PostgreSQL reads as this text, whether strings conform to the standard or not."""
    quoted = text.replace("'", "''")
    return f"E'{quoted.replace(chr(92), chr(92) * 2)}'" if "\\" in text else f"'{quoted}'"


def quote_identifier(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))
