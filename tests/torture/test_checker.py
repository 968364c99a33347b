"""The checker on small cases: it reports nothing if everything is right, and every change that makes something false."""

import json
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from smile.gateway.frames import row_messages
from tests.processes import wait_until
from tests.torture import floor
from tests.torture.checker import problems
from tests.torture.left import has_come_to, opened, publish
from tests.torture.truth import Recorded
from tests.torture.witness import Progress, Reset, Session, Witness, key_of

Case = tuple[Witness, Recorded]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A subscriber to each view, which receives a frame after every publication, and resumes once."""
    witness, random, last = Witness(), Random(1), dict[str, int]()
    folder = tmp_path_factory.mktemp("case")
    with opened(folder) as broker:
        feeds = {}
        for name, view in broker.views.items():
            witness.sessions.append(Session(f"to {name}", name, {}))
            feeds[name] = view.subscribe(view.condition({}), lambda: None)
        for n in range(8):
            bids = [floor.bid(random, "b", 3 * n + i) for i in range(3)]
            published = {"Bids": bids, "Readings": [floor.reading(random, "r", n, n + 1)]}
            if last:
                published["Matches"] = [{"who": "m", "n": n, "bid": last["Bids"], "traded": 9}]
            for stream, events in published.items():
                witness.sending(stream, events)
                ticks = list(publish(broker, stream, events).ticks)
                witness.answered(stream, events, ticks, 0, witness.heard.get(stream))
                last[stream] = ticks[-1]
            wait_until(lambda: has_come_to(broker, last), "views do not come so far")
            for session in witness.sessions:
                while (part := feeds[session.view].next_frame(500)) is not None:
                    session.entries += [Reset()] if part.reset else []
                    session.entries += [json.loads(message) for message in row_messages(part)]
                    if part.progress is not None:
                        session.entries.append(Progress(part.progress))
                        witness.hear(part.progress)
    return witness, Recorded(folder / "log", floor.compiled())


def session_of(witness: Witness, view: str) -> Session:
    return next(session for session in witness.sessions if session.view == view)


def rows_of(session: Session) -> list[dict[str, Any]]:
    return [entry for entry in session.entries if isinstance(entry, dict)]


def test_nothing_is_found_in_what_is_so(case: Case) -> None:
    witness, recorded = case
    assert recorded.count < 150, "the reference is asked too"
    assert problems(witness, recorded, Random(1)) == []
    assert any("deleted" in row for row in rows_of(session_of(witness, "Remaining")))


MUTATIONS: dict[str, tuple[Callable[[Witness], None], str]] = {}


def mutation(symptom: str) -> Callable[[Callable[[Witness], None]], None]:
    def note(change: Callable[[Witness], None]) -> None:
        MUTATIONS[change.__name__] = change, symptom

    return note


@mutation("the log has it at None")
def an_event_was_acknowledged_that_is_not_there(witness: Witness) -> None:
    witness.acknowledged["nobody", 1] = "Bids", 17


@mutation("and the log has it at")
def an_event_was_acknowledged_with_another_tick(witness: Witness) -> None:
    stream, tick = witness.acknowledged["b", 3]
    witness.acknowledged["b", 3] = stream, tick + 1024


@mutation("nobody sent")
def an_event_is_there_that_nobody_sent(witness: Witness) -> None:
    del witness.sent["b", 3]


@mutation("was sent")
def an_event_has_other_values(witness: Witness) -> None:
    stream, event = witness.sent["b", 3]
    witness.sent["b", 3] = stream, {**event, "price": 51}


@mutation("and the log ends at")
def more_was_told_than_the_log_knows(witness: Witness) -> None:
    witness.heard["Bids"] += 2**50


@mutation("is known less than before")
def a_count_falls(witness: Witness) -> None:
    row = next(row for row in reversed(rows_of(session_of(witness, "Totals"))) if row["row"]["bids"] > 2)
    row["knowledge"]["bids"]["at_least"] = row["row"]["bids"] = 1


@mutation("and true is")
def the_last_change_is_missing(witness: Witness) -> None:
    session = session_of(witness, "Totals")
    session.entries.remove(rows_of(session)[-1])


@mutation("and true is None")
def a_row_is_not_deleted(witness: Witness) -> None:
    session = session_of(witness, "Remaining")
    session.entries.remove(next(row for row in rows_of(session) if "deleted" in row))


@mutation("in the end")
def a_row_claims_too_much(witness: Witness) -> None:
    row = rows_of(session_of(witness, "Totals"))[0]
    row["knowledge"]["bids"] = {"exactly": row["row"]["bids"]}


@mutation("was gone for good")
def a_row_is_gone_for_good_and_is_not(witness: Witness) -> None:
    session = session_of(witness, "Totals")
    row = rows_of(session)[0]
    at = session.entries.index(row)
    gone = {"view": "Totals", "key": row["key"], "deleted": True, "final": True, "steps": 1}
    session.entries.insert(at, gone)


@mutation("then")
def progress_falls(witness: Witness) -> None:
    session = session_of(witness, "Peaks")
    marks = [entry for entry in session.entries if isinstance(entry, Progress)]
    session.entries.append(marks[0])


@mutation("is gone after a reset")
def a_row_that_stays_is_not_in_the_next_snapshot(witness: Witness) -> None:
    session = session_of(witness, "Totals")
    last = {key_of(row): row for row in rows_of(session)}
    lost, *others = last.values()
    assert lost.get("stays")
    marks = [entry for entry in session.entries if isinstance(entry, Progress)]
    session.entries += [Reset(), *others, marks[-1]]


@mutation("does not meet")
def a_row_is_told_that_was_not_asked_for(witness: Witness) -> None:
    session_of(witness, "Totals").where = {"issue": "A"}


@mutation("neither ahead nor behind")
def two_are_told_of_horizons_that_contradict_each_other(witness: Witness) -> None:
    session = session_of(witness, "Remaining")
    mark = next(entry for entry in session.entries if isinstance(entry, Progress) and entry.horizons["Bids"] > 0)
    session.entries[session.entries.index(mark)] = Progress({**mark.horizons, "Bids": 0, "Matches": 10**19})


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_is_false_is_found(case: Case, name: str) -> None:
    witness, recorded = deepcopy(case[0]), case[1]
    change, symptom = MUTATIONS[name]
    change(witness)
    assert any(symptom in problem for problem in problems(witness, recorded, Random(1)))
