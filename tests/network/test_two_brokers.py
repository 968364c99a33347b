"""Two brokers as processes, with a link between them."""

from pathlib import Path

import pytest

from smile.settings import NeighbourSettings
from tests.brokers import InProcessBroker
from tests.network.processes import NetworkProcesses, link_status, wait_for_import, wait_for_rows
from tests.processes import invoke_smile, wait_until

BIDS = "CREATE STREAM Bids (t: time -> issue: string, shares: int CHECK (shares >= 0));\n"
EXPORTING = BIDS + "CREATE VIEW Sums AS SELECT issue, SUM(shares) AS total FROM Bids GROUP BY issue;\nSUBSCRIBE Sums;\n"
IMPORTING = """
IMPORT Sums FROM buys;
IMPORT Bids FROM buys;
CREATE VIEW Large AS SELECT issue, total FROM Sums WHERE total >= 10;
CREATE VIEW Counts AS SELECT issue, COUNT(*) AS n FROM Bids GROUP BY issue;
SUBSCRIBE Large, Counts;
"""


@pytest.mark.slow
def test_a_stream_and_a_view_are_imported(tmp_path: Path) -> None:
    with NetworkProcesses(tmp_path) as network:
        buys = network.start("buys", EXPORTING)
        buys.publish("Bids", {"issue": "IBM", "shares": 7}, {"issue": "SUN", "shares": 20})
        floor = network.start("floor", IMPORTING, {"buys": network.url("buys")})
        wait_for_import(floor, "Sums")
        wait_for_rows(floor, "Large", {"SUN": 20})
        wait_for_rows(floor, "Counts", {"IBM": 1, "SUN": 1})
        buys.publish("Bids", {"issue": "IBM", "shares": 7})
        wait_for_rows(floor, "Large", {"IBM": 14, "SUN": 20})
        wait_for_rows(floor, "Counts", {"IBM": 2, "SUN": 1})
        (link,) = link_status(floor, "buys")
        assert (link["state"], link["called"], link["address"]) == ("open", True, network.url("buys"))
        (link,) = link_status(buys, "floor")
        assert (link["state"], link["called"], link["exports"]) == ("open", False, ["Sums", "Bids"])
        assert floor.stop() == 0 and buys.stop() == 0


def test_imports_are_added_to_a_running_broker(tmp_path: Path) -> None:
    """`smile apply` fetches the types of what the program imports, and the link carries it at once."""
    with NetworkProcesses(tmp_path) as network:
        buys = network.start_here("buys", EXPORTING)
        floor = network.start_here("floor", BIDS, {"buys": [network.url("buys")]})
        buys.publish("Bids", {"issue": "IBM", "shares": 7}, {"issue": "SUN", "shares": 20})
        program = tmp_path / "floor.smile"
        program.write_text(
            IMPORTING.replace("IMPORT Bids FROM buys", "IMPORT Bids FROM buys AS Bought").replace(
                "FROM Bids", "FROM Bought"
            )
        )
        applied = invoke_smile("apply", "--yes", str(program), "--url", floor.url)
        assert applied.exit_code == 0, applied.output
        wait_for_rows(floor, "Large", {"SUN": 20})
        wait_for_rows(floor, "Counts", {"IBM": 1, "SUN": 1})
        program.write_text("IMPORT Sumz FROM buys;\nCREATE VIEW Large AS SELECT * FROM Sumz;\nSUBSCRIBE Large;\n")
        refused = invoke_smile("apply", "--yes", str(program), "--url", floor.url)
        assert refused.exit_code == 1
        assert f"{program}:1:1: error E021: buys: there is no view Sumz" in refused.stderr


def test_the_exporting_broker_calls(tmp_path: Path) -> None:
    """Either side may open the link: the importing one has no address of its neighbour after the first start."""
    with NetworkProcesses(tmp_path) as network:
        folder, url = tmp_path / "floor", f"http://127.0.0.1:{network.port('floor')}"
        buys = network.start_here("buys", EXPORTING, {"floor": [url]})
        buys.publish("Bids", {"issue": "SUN", "shares": 20})
        neighbour = {"buys": NeighbourSettings(url=(buys.url,))}
        InProcessBroker(folder, IMPORTING, broker_name="floor", brokers=neighbour).stop()
        listen = f"127.0.0.1:{network.port('floor')}"
        with InProcessBroker(folder, None, broker_name="floor", listen=listen) as floor:
            wait_for_rows(floor, "Large", {"SUN": 20})
            (link,) = link_status(floor, "buys")
            assert not link["called"] and link["address"] is None
        wait_until(lambda: link_status(buys, "floor")[0]["state"] == "absent", "the link is still there")
