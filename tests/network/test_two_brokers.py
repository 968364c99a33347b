"""Two brokers as processes, with a link between them."""

from pathlib import Path
from typing import Any

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
        assert f"{program}:1:1: error E021: buys: there is no stream or view Sumz" in refused.stderr


def test_the_graph_has_the_state_of_links(tmp_path: Path) -> None:
    with NetworkProcesses(tmp_path) as network:
        buys = network.start_here("buys", EXPORTING)
        floor = network.start_here("floor", IMPORTING, {"buys": [network.url("buys")]})
        wait_for_import(floor, "Sums")

        def show_link() -> dict[str, Any]:
            with floor.http() as http:
                nodes = http.get("/program/graph").json()["nodes"]
            (link,) = [node for node in nodes if node["kind"] == "link"]
            return dict(link)

        def measure() -> bool:
            buys.publish("Bids", {"issue": "IBM", "shares": 7})
            link = show_link()
            return bool(link["rate"]) and link["lag_s"] is not None

        wait_until(measure, "the link has no rate and no lag")
        link = show_link()
        assert (link["name"], link["state"], link["problem"]) == ("buys", "up", None)
        assert isinstance(buys, InProcessBroker)
        buys.stop()
        wait_until(lambda: show_link()["state"] == "down" and bool(show_link()["problem"]), "the link is not down")
        assert show_link()["rate"] is None


def test_a_type_that_has_changed_is_accepted_by_applying_the_same_program(tmp_path: Path) -> None:
    with NetworkProcesses(tmp_path) as network:
        buys = network.start_here("buys", EXPORTING)
        floor = network.start_here("floor", IMPORTING, {"buys": [network.url("buys")]})
        buys.publish("Bids", {"issue": "IBM", "shares": 7}, {"issue": "IBM", "shares": 5})
        wait_for_rows(floor, "Large", {"IBM": 12})
        exporting, importing = tmp_path / "buys.smile", tmp_path / "floor.smile"
        exporting.write_text(EXPORTING.replace("SUM(shares)", "SUM(2 * shares)"))
        assert invoke_smile("apply", "--yes", str(exporting), "--url", buys.url).exit_code == 0
        refused = wait_for_import(floor, "Sums", "refused")
        assert refused["problem"]["code"] == "E124"
        wait_for_rows(floor, "Large", {"IBM": 12})
        importing.write_text(IMPORTING)
        applied = invoke_smile("apply", "--yes", str(importing), "--url", floor.url)
        assert (applied.exit_code, applied.stderr) == (0, "smile: applied\n")
        effects = {line.strip() for line in applied.stdout.splitlines()}
        assert "~ import Sums: changed at the broker that it comes from: begins anew" in effects
        assert {"~ view Large: changed: computed anew; its subscriptions end", "view Counts: unchanged"} <= effects
        wait_for_rows(floor, "Large", {"IBM": 24})
        wait_for_rows(floor, "Counts", {"IBM": 2})
        again = invoke_smile("apply", str(importing), "--url", floor.url)
        assert again.stdout == f"The broker runs this program already: {importing}\n"


def test_the_exporting_broker_calls(tmp_path: Path) -> None:
    """Either side may open the link: the importing one has no address of its neighbour, only a file with its types."""
    with NetworkProcesses(tmp_path) as network:
        folder, url = tmp_path / "floor", f"http://127.0.0.1:{network.port('floor')}"
        buys = network.start_here("buys", EXPORTING, {"floor": [url]})
        buys.publish("Bids", {"issue": "SUN", "shares": 20})
        program, types = tmp_path / "exporting.smile", tmp_path / "types.json"
        program.write_text(EXPORTING)
        types.write_text(invoke_smile("explain", str(program), "--as", "exports", "--broker", "buys").stdout)
        neighbour = {"buys": NeighbourSettings(types=str(types))}
        listen = f"127.0.0.1:{network.port('floor')}"
        with InProcessBroker(folder, IMPORTING, broker_name="floor", listen=listen, brokers=neighbour) as floor:
            wait_for_rows(floor, "Large", {"SUN": 20})
            (link,) = link_status(floor, "buys")
            assert not link["called"] and link["address"] is None
        wait_until(lambda: link_status(buys, "floor")[0]["state"] == "absent", "the link is still there")
