"""The service fails at each of its steps, just before or just after it, and is started again: nothing is lost or
doubled."""

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from smile.broker.publishing.submission import Submission
from smile.broker.subscriptions.durable_subscriptions import SubscriptionClaim
from smile.postgres.capture import capture
from smile.postgres.capture.event_publisher import EventPublisher
from smile.postgres.delivery.delivery import Delivery
from smile.postgres.delivery.view_tables import ViewTables
from tests.postgres.services import Connection, connect, create_type, publish, serving, wait_for_events
from tests.processes import wait_until

PROGRAM = """
CREATE STREAM E (tick TIME KEY, n int CHECK (n < 1000), who string);
CREATE VIEW Total AS SELECT COUNT(*) AS events, SUM(n) AS total FROM E;
"""
STEPS: list[tuple[Any, str]] = [
    (capture, "begin_batch"),
    (EventPublisher, "publish"),
    (Submission, "submit"),
    (capture, "finish_batch"),
    (Delivery, "find_position"),
    (Delivery, "add_subscription"),
    (Delivery, "_match"),
    (SubscriptionClaim, "acknowledge_frame"),
    (ViewTables, "_write_frame"),
    (SubscriptionClaim, "acknowledge_rows"),
]


class Failure(Exception):
    """Stands for the end of the process."""


def prepare(connection: Connection) -> None:
    """Transactions with events before and after a subscription, and an event that the broker refuses."""
    create_type(connection, "E")
    connection.execute("CREATE TABLE public.received (id bigint GENERATED ALWAYS AS IDENTITY, n bigint)")
    connection.execute(
        "CREATE FUNCTION public.receive(n bigint) RETURNS void LANGUAGE sql AS "
        "'INSERT INTO public.received (n) VALUES ($1)'"
    )
    connection.execute("SELECT smile.create_view_table('public.total', 'Total', false)")
    for n in range(3):
        publish(connection, "E", {"n": n})
    with connection.transaction():
        publish(connection, "E", {"n": 3})
        publish(connection, "E", {"n": 1003})
        connection.execute(
            "SELECT smile.create_subscription('s', 'E', 'local', 'n > 4', 'public.receive', '(event).n', 0)"
        )
    for n in range(4, 8):
        publish(connection, "E", {"n": n})


def failing(step: Callable[..., Any], is_before: bool, reached: Event) -> Callable[..., Any]:
    def fail(*values: Any, **named: Any) -> Any:
        if not is_before:
            step(*values, **named)
        reached.set()
        raise Failure

    return fail


@pytest.mark.slow
@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(("owner", "name"), STEPS, ids=[name.strip("_") for _, name in STEPS])
def test_a_step_that_fails_is_repeated(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, is_before: bool
) -> None:
    with connect(database) as connection:
        prepare(connection)
        reached = Event()
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, failing(getattr(owner, name), is_before, reached))
            with serving(database, tmp_path, PROGRAM):
                assert reached.wait(60), "the step is not reached"
        publish(connection, "E", {"n": 8})
        with serving(database, tmp_path, PROGRAM) as broker:
            received = "SELECT n FROM public.received ORDER BY id"
            wait_until(lambda: (8,) in connection.execute(received).fetchall(), "not everything is delivered")
            total = "SELECT events, total FROM public.total"
            wait_until(
                lambda: (
                    connection.execute("SELECT to_regclass('public.total')").fetchone() != (None,)
                    and connection.execute(total).fetchall() == [(9, 36)]
                ),
                "the table does not equal the view",
                60,
            )
            assert connection.execute(received).fetchall() == [(n,) for n in (5, 6, 7, 8)]
            assert [e["n"] for e in wait_for_events(broker, "E", 9)] == list(range(9))
            refused = connection.execute("SELECT event ->> 'n' FROM smile.exception_queue").fetchall()
            assert refused == [("1003",)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "is_before"), [("remove_rows", False), ("begin_life", True), ("finish_batch", True)])
def test_a_life_of_a_table_that_begins_is_repeated(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_before: bool
) -> None:
    """The rows of an earlier table are removed once, and those of the new one never."""
    with connect(database) as connection:
        connection.execute("CREATE TABLE public.things (n bigint); INSERT INTO public.things VALUES (1), (2), (2)")
        connection.execute("SELECT smile.create_table_stream('Things', 'public.things')")
        with serving(database, tmp_path) as broker:
            wait_for_events(broker, "Things", 3)
        connection.execute("DROP TABLE public.things")
        connection.execute("CREATE TABLE public.things (n bigint); INSERT INTO public.things VALUES (2), (3)")
        connection.execute("SELECT smile.create_table_stream('Things', 'public.things')")
        connection.execute("INSERT INTO public.things VALUES (4)")
        reached = Event()
        with monkeypatch.context() as patch:
            patch.setattr(capture, name, failing(getattr(capture, name), is_before, reached))
            with serving(database, tmp_path):
                assert reached.wait(60), "the step is not reached"
        with serving(database, tmp_path) as broker:
            connection.execute("INSERT INTO public.things VALUES (5)")
            events = [(e["change"], e["n"]) for e in wait_for_events(broker, "Things", 10)]
            assert sorted(events[3:6]) == [("delete", 1), ("delete", 2), ("delete", 2)]
            assert [*events[:3], *events[6:]] == [("insert", n) for n in (1, 2, 2, 2, 3, 4, 5)]
