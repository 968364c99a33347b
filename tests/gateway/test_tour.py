"""The tour that a broker has for its console."""

import json
from pathlib import Path

from smile.demo.stories import STORIES
from smile.demo.tours import GRID, NETWORK, PORTFOLIOS, TourFile
from tests.brokers import InProcessBroker

PROGRAM = "CREATE STREAM A (t: time -> k: int); CREATE VIEW V AS SELECT k FROM A; SUBSCRIBE V;"


def test_a_broker_without_a_tour(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, PROGRAM) as broker, broker.http() as http:
        assert http.get("/tour").json() == {"title": "", "steps": []}


def test_the_tour_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tour.json"
    path.write_text(json.dumps(STORIES["stocks"].tour()))
    with InProcessBroker(tmp_path / "data", PROGRAM, tour=str(path)) as broker, broker.http() as http:
        assert http.get("/tour").json() == STORIES["stocks"].tour()
        TourFile(path, STORIES["stocks"].tour()).lead(2)
        assert http.get("/tour").json() == STORIES["stocks"].tour() | {"running": 2}
        for tour in (GRID, NETWORK, PORTFOLIOS):
            path.write_text(json.dumps(tour.to_json()))
            assert http.get("/tour").json() == tour.to_json()
        for damaged in ("{", '{"title": 1}'):
            path.write_text(damaged)
            answer = http.get("/tour")
            assert "E195" in answer.text
            assert answer.status_code >= 400
