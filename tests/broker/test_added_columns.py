"""A stream gets further columns while its broker runs: earlier events have NULL there, and nothing is lost."""

from decimal import Decimal
from pathlib import Path

import pytest

from smile.broker.program_difference import ProgramDifference
from smile.errors import SmileError
from tests.broker.test_broker import (
    BIDS,
    COUNTS,
    SUMS,
    TALKED,
    TALKS,
    code_of,
    opened,
    publish,
    rows_of,
    source,
    values,
)

WIDER = BIDS.replace("shares: int", "shares: int, buyer: string, price: decimal(8, 2) CHECK (price > 0)")
BUYERS = "CREATE VIEW Buyers AS SELECT buyer AS issue, COUNT(*) AS n, MAX(price) AS high FROM Bids GROUP BY buyer;\n"


def test_earlier_events_have_null_in_added_columns(tmp_path: Path) -> None:
    with opened(tmp_path, source(BIDS, TALKS, SUMS, TALKED)) as broker:
        publish(broker, "Bids", ("IBM", 1), ("HAL", 3))
        publish(broker, "Talks", ("IBM",))
        difference = broker.apply(source(WIDER, TALKS, SUMS, TALKED, BUYERS))
        assert difference == ProgramDifference(("Buyers",), ("Sums",), (), ("Talked",), (), (), ())
        after = publish(broker, "Bids", ("IBM", 2, "ann", Decimal("1.50")))
        assert values(rows_of(broker, "Sums", after)) == {"IBM": 3, "HAL": 3}
        assert values(rows_of(broker, "Buyers", after)) == {None: 2, "ann": 1}
        talks = publish(broker, "Talks", ("HAL",))
        assert values(rows_of(broker, "Talked", talks)) == {"IBM": 1, "HAL": 1}
    with opened(tmp_path, None) as broker:
        assert values(rows_of(broker, "Buyers", after)) == {None: 2, "ann": 1}
        assert values(rows_of(broker, "Talked", talks)) == {"IBM": 1, "HAL": 1}
        assert broker.log.schemas["Bids"].width == 5


def test_an_event_that_was_decoded_before_has_null(tmp_path: Path) -> None:
    with opened(tmp_path, source(BIDS, COUNTS)) as broker:
        broker.apply(source(WIDER, BUYERS))
        after = publish(broker, "Bids", ("IBM", 1))
        assert values(rows_of(broker, "Buyers", after)) == {None: 1}


@pytest.mark.parametrize(
    "changed",
    [
        BIDS.replace("shares: int", "shares: int, buyer: string NOT NULL"),
        BIDS.replace("shares: int", "buyer: string, shares: int"),
        BIDS.replace("shares: int", "shares: float"),
        BIDS.replace("shares: int", "shares: int CHECK (shares > 0)"),
        BIDS.replace("shares: int", "shares: int, buyer: string UNIQUE"),
        BIDS.replace(", shares: int", ""),
        BIDS.replace(";", " WITH (TICKS = PUBLISHER);"),
    ],
)
def test_another_change_of_a_stream_is_refused(tmp_path: Path, changed: str) -> None:
    with opened(tmp_path, source(BIDS, COUNTS)) as broker:
        after = publish(broker, "Bids", ("IBM", 1))
        with pytest.raises(SmileError) as problem:
            broker.apply(source(changed, "CREATE VIEW Counts AS SELECT issue, COUNT(*) AS n FROM Bids GROUP BY issue;"))
        assert code_of(problem) == "E102"
        assert values(rows_of(broker, "Counts", after)) == {"IBM": 1}


TABLE = "CREATE TABLE Accounts (issue string PRIMARY KEY, owner string NOT NULL);\n"
CONTENTS = "CREATE VIEW Contents AS SELECT * FROM Accounts;\n"


def test_a_table_is_changed_by_publishers_and_gets_a_column(tmp_path: Path) -> None:
    with opened(tmp_path, source(TABLE, CONTENTS)) as broker:
        publish(broker, "Accounts", (None, "a", "ann"), ("insert", "b", "bob"), ("update", "a", "anna"))
        after = publish(broker, "Accounts", ("delete", "b", None))
        assert values(rows_of(broker, "Contents", after)) == {"a": "anna"}
        with pytest.raises(SmileError) as problem:
            publish(broker, "Accounts", (None, "c", None))
        assert code_of(problem) == "E080"
        broker.apply(source(TABLE.replace(");", ", level int);"), CONTENTS.replace("*", "issue, level, owner")))
        after = publish(broker, "Accounts", (None, "c", "carl", 7))
        assert values(rows_of(broker, "Contents", after)) == {"a": None, "c": 7}
