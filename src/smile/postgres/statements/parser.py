"""Parses the publish/subscribe statements, and nothing else.

A statement is committed to this grammar at the first words with which PostgreSQL accepts no statement, such as CREATE
EVENT TYPE or CREATE SUBSCRIPTION s ON. Before that, it is not a statement of this grammar. After that, anything but the
complete statement is an error (E158).
"""

from collections.abc import Callable
from typing import TypeVar

from smile.errors import SmileError, error
from smile.postgres.statements.lexer import TokenKind
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
    Privilege,
    PublicationCall,
    Publish,
    PubSubStatement,
    Reliability,
    RevokePrivilege,
    RuleOperation,
    Scope,
    Visibility,
)
from smile.postgres.statements.splitter import SqlStatement
from smile.postgres.statements.token_cursor import SqlCursor
from smile.source import Span

T = TypeVar("T")

OPERATIONS: tuple[RuleOperation, ...] = ("insert", "update", "delete")
PRIVILEGES: tuple[Privilege, ...] = ("publish", "subscribe")
SCOPES: tuple[Scope, ...] = ("local", "global")
VISIBILITIES: tuple[Visibility, ...] = ("immediate", "deferred")


def parse_statement(statement: SqlStatement) -> PubSubStatement | None:
    """The statement, or None if it is not of this grammar. Raises E158 if it is an incomplete one."""
    cursor = SqlCursor(statement)
    for words, parse in _PARSERS:
        if cursor.is_at(*words):
            cursor.index = len(words)
            node = parse(cursor)
            if node is not None:
                cursor.expect_end()
                _refuse_parameters(statement, node)
            return node
    return None


def _refuse_parameters(statement: SqlStatement, node: PubSubStatement) -> None:
    """Parameters are for the values of PUBLISH and for links. Texts that the catalogue keeps cannot have them."""
    if isinstance(node, Publish | CreateLink):
        return
    for token in statement.tokens:
        if token.kind is TokenKind.PARAMETER:
            written = statement.text[token.start : token.end]
            hint = "Only PUBLISH and CREATE LINK take parameters. Write the value itself."
            raise error("E158", f"{node.tag} cannot have the parameter {written}", Span(token.start, token.end), hint)


def _create_event_type(cursor: SqlCursor) -> PubSubStatement:
    name = cursor.read_name("the name of an event type")
    cursor.expect("AS")
    opening = cursor.copy_at(cursor.index + 1)
    columns = cursor.read_parenthesised()
    if columns is None:
        raise opening.unexpected("a column")
    return CreateEventType(name, columns)


def _drop_event_type(cursor: SqlCursor) -> PubSubStatement:
    return DropEventType(cursor.read_name("the name of an event type"))


def _alter_queue(cursor: SqlCursor) -> PubSubStatement:
    queue = cursor.read_name("the name of a queue")
    cursor.expect("SET")
    if cursor.skip("AUDITABLE"):
        return AlterQueue(queue, auditable=True)
    if cursor.skip("NON", "-", "AUDITABLE"):
        return AlterQueue(queue, auditable=False)
    raise cursor.unexpected("AUDITABLE or NON-AUDITABLE")


def _advertise(cursor: SqlCursor) -> PubSubStatement:
    return Advertise(cursor.read_name("an event type"))


def _drop_advertisement(cursor: SqlCursor) -> PubSubStatement:
    return DropAdvertisement(cursor.read_name("an event type"))


def _publish(cursor: SqlCursor) -> PubSubStatement:
    return Publish(_read_publication_call(cursor))


def _read_publication_call(cursor: SqlCursor) -> PublicationCall:
    """What follows the word PUBLISH. A word that precedes a parenthesis is the event type, whatever it is."""
    visibility: Visibility = "deferred"
    reliability: Reliability = "guaranteed"
    for choice in VISIBILITIES:
        if not cursor.is_at("(", ahead=1) and cursor.skip(choice.upper()):
            visibility = choice
            break
    if cursor.skip("NON", "-", "GUARANTEED"):
        reliability = "non-guaranteed"
    elif not cursor.is_at("(", ahead=1):
        cursor.skip("GUARANTEED")
    event_type = cursor.read_name("an event type")
    return PublicationCall(event_type, cursor.read_parenthesised(), visibility, reliability)


def _create_rule(cursor: SqlCursor) -> PubSubStatement | None:
    if not cursor.is_at_name():
        return None
    name = cursor.read_name("the name of a rule")
    if not cursor.skip("AS", "ON"):
        return None
    operation = next((operation for operation in OPERATIONS if cursor.skip(operation.upper())), None)
    first = cursor.index + 1
    # PostgreSQL's rules have DO, which is a reserved word, and no rule of this grammar has it outside of parentheses.
    if operation is None or not cursor.skip("TO") or not cursor.skip_qualified_name() or cursor.find_words("DO"):
        return None
    table = cursor.span_from(first)
    if cursor.skip("PUBLISH"):
        return CreateRule(name, operation, table, None, _read_publication_call(cursor))
    if not cursor.skip("WHERE") or not cursor.find_words("PUBLISH"):
        return None
    condition, call = _read_condition_before("PUBLISH", _read_publication_call, cursor)
    return CreateRule(name, operation, table, condition, call)


def _read_condition_before(word: str, read: Callable[[SqlCursor], T], cursor: SqlCursor) -> tuple[Span, T]:
    """A condition and what follows it, which begins with the word. The condition may have a column of the same name: it
    ends where the rest can be read completely. If it cannot, the error is the one after the last of these words."""
    first, problem = cursor.index, cursor.unexpected("a condition")
    for index in cursor.find_words(word):
        if index == first:
            continue
        cursor.index = index
        condition = cursor.span_from(first)
        cursor.index += 1
        try:
            rest = read(cursor)
            cursor.expect_end()
        except SmileError as unexpected:
            problem = unexpected
        else:
            return condition, rest
    raise problem


def _drop_rule(cursor: SqlCursor) -> PubSubStatement | None:
    """Without PUBLISH it is PostgreSQL's own statement."""
    if not cursor.is_at_name():
        return None
    name = cursor.read_name("the name of a rule")
    first = cursor.index + 1
    if not cursor.skip("ON") or not cursor.skip_qualified_name():
        return None
    table = cursor.span_from(first)
    return DropRule(name, table) if cursor.skip("PUBLISH") else None


def _create_scoped_subscription(scope: Scope) -> Callable[[SqlCursor], PubSubStatement]:
    def parse(cursor: SqlCursor) -> PubSubStatement:
        return _read_subscription(cursor, scope)

    return parse


def _create_subscription(cursor: SqlCursor) -> PubSubStatement | None:
    """PostgreSQL's own statement has CONNECTION after the name."""
    return _read_subscription(cursor, None) if cursor.is_at_name() and cursor.is_at("ON", ahead=1) else None


def _read_subscription(cursor: SqlCursor, scope: Scope | None) -> PubSubStatement:
    name = cursor.read_name("the name of a subscription")
    cursor.expect("ON")
    event_type = cursor.read_name("an event type")
    condition = None
    if cursor.skip("WHERE"):
        if not cursor.find_words("EXECUTE"):
            cursor.index = len(cursor.statement.tokens)
            raise cursor.unexpected("EXECUTE function(arguments)")
        condition, (function, arguments, priority) = _read_condition_before("EXECUTE", _read_execution, cursor)
    else:
        cursor.expect("EXECUTE")
        function, arguments, priority = _read_execution(cursor)
    return CreateSubscription(name, event_type, scope, condition, function, arguments, priority)


def _read_execution(cursor: SqlCursor) -> tuple[Span, Span | None, Span | None]:
    function = cursor.read_qualified_name("a function")
    arguments = cursor.read_parenthesised()
    priority = cursor.read_integer("a priority, which is an integer") if cursor.skip("WITH") else None
    return function, arguments, priority


def _drop_subscription(cursor: SqlCursor) -> PubSubStatement | None:
    """Without ON it is PostgreSQL's own statement."""
    if not cursor.is_at_name() or not cursor.is_at("ON", ahead=1):
        return None
    name = cursor.read_name("the name of a subscription")
    cursor.expect("ON")
    cursor.read_name("an event type")
    return DropSubscription(name)


def _create_link(cursor: SqlCursor) -> PubSubStatement:
    name = cursor.read_name("the name of a link")
    cursor.expect("TO")
    address = cursor.read_link_value("an address")
    port = cursor.copy_at(cursor.index).read_link_value("a port")
    if not port.is_parameter and not port.text.isdecimal():
        raise cursor.unexpected("a port")
    cursor.read_link_value("a port")
    cursor.expect("USING")
    user = cursor.read_link_value("a user")
    return CreateLink(name, address, port, user, cursor.read_link_value("a password"))


def _drop_link(cursor: SqlCursor) -> PubSubStatement:
    return DropLink(cursor.read_name("the name of a link"))


def _grant(privilege: Privilege) -> Callable[[SqlCursor], PubSubStatement]:
    def parse(cursor: SqlCursor) -> PubSubStatement:
        event_type = cursor.read_name("an event type")
        cursor.expect("TO")
        return GrantPrivilege(privilege, event_type, cursor.read_name("a role"))

    return parse


def _revoke(privilege: Privilege) -> Callable[[SqlCursor], PubSubStatement]:
    def parse(cursor: SqlCursor) -> PubSubStatement:
        event_type = cursor.read_name("an event type")
        cursor.expect("FROM")
        return RevokePrivilege(privilege, event_type, cursor.read_name("a role"))

    return parse


def _create_stream(cursor: SqlCursor) -> PubSubStatement:
    name = cursor.read_name("the name of a stream")
    if not cursor.skip("FROM"):
        hint = "A stream with columns is a statement of SmileSQL: send it to a broker, for instance with smile sql."
        raise cursor.unexpected("FROM TABLE", hint)
    cursor.expect("TABLE")
    return CreateTableStream(name, cursor.read_qualified_name("a table"))


def _drop_stream(cursor: SqlCursor) -> PubSubStatement:
    return DropTableStream(cursor.read_name("the name of a stream"))


def _create_table(cursor: SqlCursor) -> PubSubStatement | None:
    first = cursor.index
    if not cursor.skip_qualified_name() or not cursor.is_at("FROM"):
        return None
    table = cursor.span_from(first)
    cursor.expect("FROM", "VIEW")
    view = cursor.read_name("a view")
    return CreateViewTable(table, view, with_knowledge=cursor.skip("WITH", "KNOWLEDGE"))


def _drop_table(cursor: SqlCursor) -> PubSubStatement | None:
    first = cursor.index
    if not cursor.skip_qualified_name() or not cursor.is_at("FROM"):
        return None
    table = cursor.span_from(first)
    cursor.expect("FROM", "VIEW")
    return DropViewTable(table)


_PARSERS: tuple[tuple[tuple[str, ...], Callable[[SqlCursor], PubSubStatement | None]], ...] = (
    (("CREATE", "EVENT", "TYPE"), _create_event_type),
    (("DROP", "EVENT", "TYPE"), _drop_event_type),
    (("ALTER", "QUEUE"), _alter_queue),
    (("ADVERTISE",), _advertise),
    (("DROP", "ADVERTISEMENT"), _drop_advertisement),
    (("PUBLISH",), _publish),
    (("CREATE", "RULE"), _create_rule),
    (("DROP", "RULE"), _drop_rule),
    *((("CREATE", scope.upper(), "SUBSCRIPTION"), _create_scoped_subscription(scope)) for scope in SCOPES),
    (("CREATE", "SUBSCRIPTION"), _create_subscription),
    (("DROP", "SUBSCRIPTION"), _drop_subscription),
    (("CREATE", "LINK"), _create_link),
    (("DROP", "LINK"), _drop_link),
    *((("GRANT", privilege.upper(), "ON", "EVENT", "TYPE"), _grant(privilege)) for privilege in PRIVILEGES),
    *((("REVOKE", privilege.upper(), "ON", "EVENT", "TYPE"), _revoke(privilege)) for privilege in PRIVILEGES),
    (("CREATE", "STREAM"), _create_stream),
    (("DROP", "STREAM"), _drop_stream),
    (("CREATE", "TABLE"), _create_table),
    (("DROP", "TABLE"), _drop_table),
)
"""The first words of each statement."""
