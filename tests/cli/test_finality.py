"""`smile explain --finality`: why a row is not final after recorded events."""

import json
from pathlib import Path

import pytest

from tests.processes import invoke_smile

PROGRAM = """
CREATE STREAM Bids (t: time -> issue: string, price: int) WITH (TICKS = PUBLISHER);
CREATE VIEW PerMinute AS SELECT issue, COUNT(*) AS n FROM TUMBLE(Bids, t, INTERVAL '1' MINUTE)
  GROUP BY issue, window_start, window_end;
CREATE VIEW Counts AS SELECT issue, COUNT(*) AS n FROM Bids GROUP BY issue;
SUBSCRIBE PerMinute, Counts;
"""
MINUTE = 60_000_000 * 1024


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[str, str]:
    program, events = tmp_path / "p.smile", tmp_path / "p.events"
    program.write_text(PROGRAM)
    lines = [{"stream": "Bids", "at": at, "event": {"issue": "IBM", "price": 1}} for at in (7, MINUTE + 7)]
    events.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(program), str(events)


def test_what_a_row_waits_for(recorded: tuple[str, str]) -> None:
    program, events = recorded
    shown = invoke_smile("explain", program, "--finality", "Counts", "IBM", "--events", events)
    assert shown.exit_code == 0
    assert "Counts, issue IBM: not final" in shown.stdout
    assert "n: at least 2, open" in shown.stdout
    assert "final never by time alone" in shown.stdout
    assert shown.stdout.count("any later event of Bids can change it") == 1
    answers = {}
    for start in (0, MINUTE):
        key = json.dumps({"issue": "IBM", "window_start": start, "window_end": start + MINUTE})
        process = invoke_smile("explain", program, "--finality", "perminute", key, "--events", events, "--json")
        assert process.exit_code == 0, process.stderr
        answers[start] = json.loads(process.stdout)
    assert (answers[0]["final"], answers[0]["waits_for"]) == (True, [])
    (wait,) = answers[MINUTE]["waits_for"]
    assert (wait["kind"], wait["needs_tick"], wait["now_tick"]) == ("window", 2 * MINUTE - 1, MINUTE + 7)
    assert "its publisher has to publish a later event" in wait["text"]


def test_what_is_wrong_is_said(recorded: tuple[str, str]) -> None:
    program, events = recorded
    missing = invoke_smile("explain", program, "--finality", "Counts", "ACME", "--events", events)
    assert (missing.exit_code, "E190" in missing.stderr, '{"issue":"IBM"}' in missing.stderr) == (1, True, True)
    assert invoke_smile("explain", program, "--finality", "Counts", "IBM").exit_code == 2
