"""Broker processes that are started for the first time before their neighbours, and by a user: what they print, and that
they continue by themselves."""

import signal
from pathlib import Path

import httpx
import pytest

from tests.broker.network.test_first_start import BUYS, SELLS
from tests.network.processes import NetworkProcesses, status, wait_for_rows
from tests.processes import invoke_smile, wait_until

pytestmark = pytest.mark.slow


def test_two_brokers_import_from_each_other_and_are_started_at_once(tmp_path: Path) -> None:
    with NetworkProcesses(tmp_path) as network:
        buys = network.create("buys", BUYS, {"sells": network.url("sells")})
        sells = network.create("sells", SELLS, {"buys": network.url("buys")})
        try:
            for broker in (buys, sells):
                broker.launch()
            for broker in (buys, sells):
                broker.url = broker.wait_for_line("listening on ").removeprefix("listening on ")
            for broker in (buys, sells):
                broker.wait_until_ready()
            buys.publish("Bids", {"issue": "IBM", "shares": 20})
            sells.publish("Offers", {"issue": "IBM", "price": 7})
            wait_for_rows(buys, "Large", {"IBM": (20, 7)})
            wait_for_rows(sells, "Wanted", {"IBM": 20})
            # Now each starts without the other one.
            buys.kill()
            sells.kill()
            buys.start()
            wait_for_rows(buys, "Large", {"IBM": (20, 7)})
            assert status(buys)["waiting"] == []
        finally:
            for broker in (buys, sells):
                broker.kill()


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.nightly)])
def test_a_broker_waits_for_its_neighbour(tmp_path: Path, engine: str) -> None:
    spark = {"engine": "spark", "master": "local[1]", "flight": ""} if engine == "spark" else {}
    with NetworkProcesses(tmp_path) as network:
        buys = network.start("buys", BUYS, {"sells": network.url("sells")}, **spark)
        text = "waiting for the description of Prices from sells: sells cannot be reached"
        assert buys.wait_for_line("waiting for ").startswith(text)
        assert httpx.get(f"{buys.url}/live").status_code == 200
        assert buys.lines[0].startswith("serving buys.smile: Sums; maintained")
        shown = invoke_smile("status", "--url", buys.url).stdout
        assert "waiting" in shown and "for the description of Prices from sells: E103: sells cannot be reached" in shown
        refused = invoke_smile("subscribe", "Large", "--url", buys.url)
        assert refused.exit_code == 1 and "E138: Large is not there yet" in refused.stderr
        buys.publish("Bids", {"issue": "IBM", "shares": 20})
        assert not any(line == "ready" for line in buys.lines)
        assert buys.stop(signal.SIGINT) == 0  # Ctrl-C works while it waits
        buys.start()
        buys.wait_for_line("waiting for ")
        sells = network.start("sells", SELLS, {"buys": buys.url})
        buys.wait_until_ready()
        assert buys.wait_for_line("all descriptions are known").endswith("Sums, Values, Large")
        sells.publish("Offers", {"issue": "IBM", "price": 7})
        wait_for_rows(buys, "Large", {"IBM": (20, 7)})
        assert status(buys)["waiting"] == []
        wait_until(lambda: not status(buys)["troubles"], "a trouble is left")
