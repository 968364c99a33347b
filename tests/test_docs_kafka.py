"""The consumer of docs/howto/kafka.md, with a topic that this test stands in for: each message becomes one event, those that
are refused are kept, and the offsets are committed afterwards."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.brokers import InProcessBroker
from tests.docs import ROOT

PAGE = (ROOT / "docs" / "howto" / "kafka.md").read_text()
(SQL,) = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
_, CONSUMER = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
VIEW = "CREATE VIEW V AS SELECT place, cents FROM Payments; SUBSCRIBE V;"


class EndOfTest(Exception):  # it is no error
    pass


def message(offset: int, cents: object) -> SimpleNamespace:
    value = json.dumps({"shop": "a", "cents": cents}).encode()
    return SimpleNamespace(
        error=lambda: None, topic=lambda: "payments", partition=lambda: 0, offset=lambda: offset, value=lambda: value
    )


class Topic:
    """Delivers some messages twice, as after a crash before the offsets were committed."""

    batches: tuple[list[SimpleNamespace], ...] = (
        [message(1, 10), message(2, "dear"), message(3, 30)],
        [message(3, 30), message(4, 40)],
        [],
    )
    committed = 0

    def __init__(self, _: object) -> None:
        self.left = list(self.batches)

    def subscribe(self, _: object) -> None:
        pass

    def consume(self, _: int, timeout: float) -> list[SimpleNamespace]:  # as Kafka's consumer has it
        if not self.left:
            raise EndOfTest
        return self.left.pop(0)

    def commit(self, asynchronous: bool) -> None:
        Topic.committed += 1


def test_a_topic_is_published_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library: Any = ModuleType("confluent_kafka")
    library.Consumer = Topic
    monkeypatch.setitem(sys.modules, "confluent_kafka", library)
    monkeypatch.chdir(tmp_path)
    with InProcessBroker(tmp_path, SQL + VIEW) as broker:
        monkeypatch.setenv("SMILE_URL", broker.url)
        with pytest.raises(EndOfTest):
            exec(compile(CONSUMER, "kafka.md", "exec"), {})  # the program of the page
        (last,) = broker.publish("Payments", {"place": "end", "shop": "a", "cents": 0})
        published = sorted((row["row"]["place"], row["row"]["cents"]) for row in broker.rows("V", Payments=last))
    assert published == [("end", 0), ("payments-0-1", 10), ("payments-0-3", 30), ("payments-0-4", 40)]
    (refused,) = (tmp_path / "refused.jsonl").read_text().splitlines()
    assert json.loads(refused)["code"] == "E078"
    assert Topic.committed == 2
