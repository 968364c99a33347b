"""The publish/subscribe statements: which texts they are, which calls they become, and what is left alone."""

import pytest
from hypothesis import given, strategies as st

from smile.errors import SmileError
from smile.postgres.statements.nodes import CreateSubscription, Publish
from smile.postgres.statements.parser import parse_statement
from smile.postgres.statements.rewriting import RewrittenQuery, rewrite_query
from smile.postgres.statements.splitter import split_statements
from smile.postgres.statements.translation import quote_identifier, quote_literal

RESULT = "result"


def translated(text: str) -> tuple[str, str]:
    """The call and the tag of the only statement of the text."""
    rewritten = rewrite_query(text, RESULT)
    assert rewritten is not None
    assert rewritten.wrong == ()
    (tag,) = rewritten.tags
    return rewritten.query.text.removesuffix(f' AS "{RESULT}"'), tag


@pytest.mark.parametrize(
    ("text", "call", "tag"),
    [
        ("CREATE EVENT TYPE StockQuote AS (symbol text, price numeric(10, 2))",
         "create_event_type('StockQuote', 'symbol text, price numeric(10, 2)')", "CREATE EVENT TYPE"),
        ("drop event type StockQuote", "drop_event_type('StockQuote')", "DROP EVENT TYPE"),
        ("ALTER QUEUE q_in SET AUDITABLE", "alter_queue('q_in', true)", "ALTER QUEUE"),
        ("ALTER QUEUE q_in SET NON-AUDITABLE", "alter_queue('q_in', false)", "ALTER QUEUE"),
        ("ALTER QUEUE q_in SET NON - AUDITABLE", "alter_queue('q_in', false)", "ALTER QUEUE"),
        ("ADVERTISE q", "advertise('q')", "ADVERTISE"),
        ('ADVERTISE "it\'s ""odd"""', "advertise('it''s \"odd\"')", "ADVERTISE"),
        ("DROP ADVERTISEMENT q", "unadvertise('q')", "DROP ADVERTISEMENT"),
        ("PUBLISH q('IBM', $1)",
         "\"publish_q\"('IBM', $1, visibility => 'deferred', reliability => 'guaranteed')", "PUBLISH"),
        ("PUBLISH IMMEDIATE NON-GUARANTEED StockQuote (1 /* one */, (SELECT 2) -- two\n)",
         "\"publish_stockquote\"(1 /* one */, (SELECT 2), visibility => 'immediate', reliability => 'non-guaranteed')",
         "PUBLISH"),
        ("publish deferred guaranteed q()", "\"publish_q\"(visibility => 'deferred', reliability => 'guaranteed')", "PUBLISH"),
        ("PUBLISH IMMEDIATE (1)",
         "\"publish_immediate\"(1, visibility => 'deferred', reliability => 'guaranteed')", "PUBLISH"),
        ("PUBLISH DEFERRED GUARANTEED (1)",
         "\"publish_guaranteed\"(1, visibility => 'deferred', reliability => 'guaranteed')", "PUBLISH"),
        ("CREATE RULE r AS ON UPDATE TO s.t PUBLISH q(NEW.a, OLD.b)",
         "create_rule('r', 'update', 's.t', NULL, 'q', 'NEW.a, OLD.b', 'deferred', 'guaranteed')", "CREATE RULE"),
        ("CREATE RULE r AS ON DELETE TO t WHERE OLD.publish AND x = '\\' PUBLISH IMMEDIATE NON-GUARANTEED q()",
         "create_rule('r', 'delete', 't', E'OLD.publish AND x = ''\\\\''', 'q', '', 'immediate', 'non-guaranteed')",
         "CREATE RULE"),
        ('DROP RULE "R" ON s."T" PUBLISH', "drop_rule('R', 's.\"T\"')", "DROP RULE"),
        ("CREATE SUBSCRIPTION s ON q EXECUTE f()", "create_subscription('s', 'q', 'local', NULL, 'f', '', 0)",
         "CREATE SUBSCRIPTION"),
        ("CREATE GLOBAL SUBSCRIPTION s ON q WHERE a IN (SELECT execute FROM p) AND execute EXECUTE x.f(event, 1) WITH -5",
         "create_subscription('s', 'q', 'global', 'a IN (SELECT execute FROM p) AND execute', 'x.f', 'event, 1', -5)",
         "CREATE SUBSCRIPTION"),
        ("DROP SUBSCRIPTION s ON q", "drop_subscription('s')", "DROP SUBSCRIPTION"),
        ("CREATE LINK l TO db-2.example.org 5432 USING alice 'sec''ret'",
         "create_link('l', 'db-2.example.org', 5432, 'alice', 'sec''ret')", "CREATE LINK"),
        ("CREATE LINK l TO 10.0.0.7 5432 USING $1 $2", "create_link('l', '10.0.0.7', 5432, $1, $2)", "CREATE LINK"),
        ("CREATE LINK l TO '::1' $3 USING \"Al\" x1", "create_link('l', '::1', $3, 'Al', 'x1')", "CREATE LINK"),
        ("DROP LINK l", "drop_link('l')", "DROP LINK"),
        ("GRANT PUBLISH ON EVENT TYPE q TO Bob", "\"grant\"('publish', 'q', 'bob')", "GRANT"),
        ('REVOKE SUBSCRIBE ON EVENT TYPE q FROM "Bob"', "\"revoke\"('subscribe', 'q', 'Bob')", "REVOKE"),
        ("CREATE STREAM s FROM TABLE p.t", "create_table_stream('s', 'p.t')", "CREATE STREAM"),
        ("DROP STREAM s", "drop_table_stream('s')", "DROP STREAM"),
        ("CREATE TABLE p.t FROM VIEW v", "create_view_table('p.t', 'v', false)", "CREATE TABLE"),
        ("CREATE TABLE t FROM VIEW v WITH KNOWLEDGE", "create_view_table('t', 'v', true)", "CREATE TABLE"),
        ("DROP TABLE p.t FROM VIEW", "drop_view_table('p.t')", "DROP TABLE"),
    ],
)  # fmt: skip
def test_translations(text: str, call: str, tag: str) -> None:
    assert translated(text) == (f"SELECT smile.{call}", tag)


OWN = [
    "CREATE SUBSCRIPTION s CONNECTION 'host=x' PUBLICATION p", "DROP SUBSCRIPTION s", "DROP SUBSCRIPTION IF EXISTS s CASCADE",
    "CREATE RULE r AS ON INSERT TO t DO NOTHING", "CREATE RULE r AS ON INSERT TO t WHERE publish DO ALSO SELECT publish(1)",
    "CREATE OR REPLACE RULE r AS ON INSERT TO t DO (NOTIFY publish; SELECT 1)", "DROP RULE r ON t", "DROP RULE r ON t CASCADE",
    "GRANT SELECT ON TABLE event TO bob", "GRANT publish TO bob", "GRANT PUBLISH ON event TO bob", "REVOKE publish FROM bob",
    "CREATE TABLE t (publish int)", "CREATE TABLE t AS SELECT 1 FROM view", "DROP TABLE view", "NOTIFY publish, 'publish t(1)'",
    "SELECT publish(1)", "SELECT $$PUBLISH t(1)$$", "SELECT 'x' -- ; PUBLISH t(1)", "CREATE EVENT TRIGGER e ON sql_drop EXECUTE FUNCTION f()",
    "DROP EVENT TRIGGER e", "CREATE PUBLICATION publish", "ALTER SUBSCRIPTION s DISABLE", "CREATE VIEW stream AS SELECT 1",
    "CREATE LOCAL TEMP TABLE subscription (a int)", "CREATE RULE", "CREATE SUBSCRIPTION", "PREPARE p AS PUBLISH t(1)",
    "EXPLAIN PUBLISH t(1)", "/* PUBLISH t(1) */", "CREATE TABLE t", "COPY event FROM STDIN", "CREATE RULE r AS ON INSERT TO t WHERE a",
]  # fmt: skip


@pytest.mark.parametrize("text", OWN)
def test_statements_of_postgresql_are_left_alone(text: str) -> None:
    assert rewrite_query(text, RESULT) is None


@pytest.mark.parametrize(
    ("text", "message", "found"),
    [
        ("CREATE EVENT TYPE", "expected the name of an event type at the end of the statement", ""),
        ("CREATE EVENT TYPE q AS", "expected ( at the end of the statement", ""),
        ("CREATE EVENT TYPE q AS ()", "expected a column but found )", ")"),
        ("CREATE EVENT TYPE q (a int)", "expected AS but found (", "("),
        ("ALTER QUEUE q SET AUDIBLE", "expected AUDITABLE or NON-AUDITABLE but found AUDIBLE", "AUDIBLE"),
        ("ADVERTISE 5", "expected an event type but found 5", "5"),
        ("ADVERTISE q r", "expected the end of the statement but found r", "r"),
        ("PUBLISH", "expected an event type at the end of the statement", ""),
        ("PUBLISH q", "expected ( at the end of the statement", ""),
        ("PUBLISH q(1", "expected ) at the end of the statement", ""),
        ("PUBLISH NON GUARANTEED q(1)", "expected ( but found GUARANTEED", "GUARANTEED"),
        ("PUBLISH U&\"q\"(1)", 'U&"q" cannot be an event type', 'U&"q"'),
        ("CREATE RULE r AS ON INSERT TO t PUBLISH", "expected an event type at the end of the statement", ""),
        ("CREATE RULE r AS ON INSERT TO t WHERE PUBLISH q(1)", "expected a condition but found PUBLISH", "PUBLISH"),
        ("CREATE SUBSCRIPTION s ON q", "expected EXECUTE at the end of the statement", ""),
        ("CREATE LOCAL SUBSCRIPTION s", "expected ON at the end of the statement", ""),
        ("CREATE SUBSCRIPTION s ON q WHERE a = 1", "expected EXECUTE function(arguments) at the end of the statement", ""),
        ("CREATE SUBSCRIPTION s ON q WHERE a = $1 EXECUTE f()",
         "CREATE SUBSCRIPTION cannot have the parameter $1", "$1"),
        ("CREATE SUBSCRIPTION s ON q EXECUTE f() WITH 1.5", "expected a priority, which is an integer but found 1.5", "1.5"),
        ("CREATE LINK l TO host USING a b", "expected a port but found USING", "USING"),
        ("CREATE LINK l TO host 1 USING a", "expected a password at the end of the statement", ""),
        ("CREATE LINK l TO E'h' 1 USING a b", "an address must be a plain string on one line", "E'h'"),
        ("GRANT PUBLISH ON EVENT TYPE q", "expected TO at the end of the statement", ""),
        ("REVOKE PUBLISH ON EVENT TYPE q TO bob", "expected FROM but found TO", "TO"),
        ("CREATE STREAM s (a int)", "expected FROM TABLE but found (", "("),
        ("CREATE TABLE views FROM v", "expected VIEW but found v", "v"),
        ("DROP TABLE t FROM VIEW v", "expected the end of the statement but found v", "v"),
    ],
)  # fmt: skip
def test_incomplete_statements(text: str, message: str, found: str) -> None:
    rewritten = rewrite_query(text, RESULT)
    assert rewritten is not None
    assert rewritten.query.text == text
    (wrong,) = rewritten.wrong
    assert (wrong.diagnostic.code, wrong.diagnostic.message) == ("E158", message)
    assert wrong.diagnostic.span is not None
    assert text[wrong.diagnostic.span.start : wrong.diagnostic.span.end] == found


def test_nodes() -> None:
    (publish,) = split_statements("/* c */ PUBLISH IMMEDIATE Quote(a, b)") or []
    node = parse_statement(publish)
    assert isinstance(node, Publish)
    assert (node.call.event_type.text, node.call.visibility, node.call.reliability) == (
        "Quote",
        "immediate",
        "guaranteed",
    )
    (create,) = split_statements("CREATE LOCAL SUBSCRIPTION s ON q EXECUTE f(a) WITH +3") or []
    subscription = parse_statement(create)
    assert isinstance(subscription, CreateSubscription)
    assert (subscription.scope, subscription.filter, subscription.name.text) == ("local", None, "s")
    (wrong,) = split_statements("PUBLISH") or []
    with pytest.raises(SmileError, match="expected an event type"):
        parse_statement(wrong)


def test_a_text_is_rewritten_in_place() -> None:
    text = "SELECT 1; /* first */ PUBLISH q(1) ; ADVERTISE;\nADVERTISE q -- second\n; SELECT 2"
    rewritten = rewrite_query(text, RESULT)
    assert rewritten is not None
    assert rewritten.query.text == (
        "SELECT 1; /* first */ SELECT smile.\"publish_q\"(1, visibility => 'deferred', reliability => 'guaranteed') AS "
        '"result" ; ADVERTISE;\nSELECT smile.advertise(\'q\') AS "result" -- second\n; SELECT 2'
    )
    assert rewritten.tags == ("PUBLISH", "ADVERTISE")
    assert [wrong.diagnostic.message for wrong in rewritten.wrong] == [
        "expected an event type at the end of the statement"
    ]


ATOMS = [
    "SELECT 1",
    "PUBLISH q(a, $1)",
    "ADVERTISE q",
    "DROP LINK l",
    "SELECT 'PUBLISH q(1)'",
    "GRANT PUBLISH ON EVENT TYPE q TO b",
]


@given(st.lists(st.tuples(st.sampled_from(ATOMS), st.sampled_from([";", " ;\n", ";/* é */"])), min_size=1, max_size=6))
def test_copied_characters_have_their_original_positions(parts: list[tuple[str, str]]) -> None:
    text = "".join(f"{statement}{separator}" for statement, separator in parts)
    rewritten = rewrite_query(text, RESULT)
    ours = [statement for statement, _ in parts if not statement.startswith("SELECT")]
    if not ours:
        assert rewritten is None
        return
    assert isinstance(rewritten, RewrittenQuery)
    assert len(rewritten.translations) == len(ours)
    position = 0
    for piece in rewritten.query.pieces:
        for offset, character in enumerate(piece.text):
            original = rewritten.query.original_position(position + offset)
            assert text[original] == character if piece.is_copy else original == piece.start
        position += len(piece.text)
    assert rewritten.query.original_position(position) == len(text)


NOISE = st.lists(
    st.sampled_from(
        ["SELECT", "create", "table", "rule", "event", "'publish'", "(", ")", ";", "--\n", "$$x$$", "view", "1", "as"]
    )
    | st.text(max_size=4),
    max_size=25,
).map(" ".join)


@given(NOISE)
def test_text_without_our_statements_is_unchanged(text: str) -> None:
    rewritten = rewrite_query(text, RESULT)
    if rewritten is not None:
        assert rewritten.translations or rewritten.wrong
    if not any(word in text.lower() for word in ("publish ", "advertise", "event", "queue", "view", "rule")):
        assert rewritten is None
    if rewritten is not None and not rewritten.translations:
        assert rewritten.query.text == text


@given(st.text(), st.booleans())
def test_quotes(text: str, conforming: bool) -> None:
    for quoted in (quote_literal(text), quote_identifier(text)):
        statements = split_statements(quoted, conforming)
        assert statements is not None
        assert [len(statement.tokens) for statement in statements] == [1]
