"""Two brokers as processes, with a link between them."""

from pathlib import Path

import pytest

from tests.network.processes import NetworkProcesses, link_status, wait_for_import, wait_for_rows

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
