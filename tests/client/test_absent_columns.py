"""What a client learns of columns that its events lack."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from smile.client import connect
from tests.brokers import InProcessBroker, bid
from tests.processes import invoke_smile


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path_factory.mktemp("absent")) as broker:
        yield broker


def test_absent_columns_of_all_parts_are_counted(broker: InProcessBroker) -> None:
    with connect(broker.url) as client:
        assert client.publish("Bids", bid()).absent == {}
        assert client.publish("Bids", [{"issue": "a", "price": 1, "big": True}, bid()]).absent == {"weight": 1}
        assert client.publish("Bids", pa.table({"issue": ["a", "b"], "price": [1, 2]})).absent == {
            "big": 2,
            "weight": 2,
        }


def test_the_command_says_so_in_the_end(broker: InProcessBroker, tmp_path: Path) -> None:
    file = tmp_path / "bids.csv"
    file.write_text("issue,price,big\na,1,true\nb,2,\n")
    result = invoke_smile("publish", "Bids", "--file", str(file), "--url", broker.url)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.splitlines()[-1] == "warning: 2 events had no weight, which is NULL there"
