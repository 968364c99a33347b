"""`smile demo portfolios`: quotes of a database reach exactly the portfolios that hold them. The demo checks this itself."""

import re
from pathlib import Path

import psycopg
import pytest

from smile.demo.portfolios import Market, count_differences
from smile.demo.postgres_server import running_postgres
from smile.postgres.schema.install import install
from tests.processes import run_smile


@pytest.mark.slow
def test_the_demo_without_a_terminal(tmp_path: Path) -> None:
    done = run_smile("demo", "portfolios", "--seconds", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, second, third, *lines, totals, summary = done.stdout.splitlines()
    assert first == "starting a PostgreSQL server and a broker…"
    assert second.startswith("the database is at postgresql://")
    assert re.fullmatch(r"console at http://127\.0\.0\.1:\d+ \(portfolios\)", third)
    assert any("received: growth" in line for line in lines)
    counts = re.fullmatch(r"([\d,]+) quotes committed, ([\d,]+) rolled back, which nobody receives", totals)
    assert counts and int(counts[1].replace(",", "")) > 0, totals
    deliveries = re.fullmatch(r"every quote reached exactly the portfolios .* once: ([\d,]+) deliveries", summary)
    assert deliveries and int(deliveries[1].replace(",", "")) > 0, summary


@pytest.mark.slow
def test_what_is_missing_or_too_much_is_counted() -> None:
    """Otherwise the end of the demo could not fail. Nobody delivers here."""
    with running_postgres() as url, psycopg.connect(url) as connection:
        install(connection)
        market = Market(connection, 1)
        market.set_up()
        for _ in range(30):
            market.step()
        _, expected, surplus = count_differences(connection)
        assert (expected > 0, surplus) == (True, 0)
        connection.execute("INSERT INTO noted (portfolio, number) SELECT portfolio, number FROM expected")
        assert count_differences(connection) == (expected, 0, 0)
        connection.execute("INSERT INTO noted (portfolio, number) SELECT portfolio, number FROM expected LIMIT 1")
        assert count_differences(connection) == (expected, 0, 1)
