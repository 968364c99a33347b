"""Bits that are flipped in files, and what a broker may do then: it reports the damage, or it shows the right rows."""

import re
from pathlib import Path
from random import Random

from smile.errors import SmileError
from tests.brokers import BrokerProcess, DidNotStart
from tests.torture import floor
from tests.torture.left import Shown, false_views
from tests.torture.truth import Recorded
from tests.torture.witness import key_of

DAMAGE_CODES = {"E061", "E062", "E070", "E085", "E086", "E087", "E089", "E105"}
"""What says that something is damaged."""


def flip(path: Path, random: Random) -> tuple[int, int]:
    """One bit; where, for the report."""
    at, bit = random.randrange(path.stat().st_size), random.randrange(8)
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)
    return at, bit


def kinds(folder: Path) -> dict[str, list[Path]]:
    """The files of a directory by kind: names without what is drawn or counted in them."""
    paths_by_kind: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.stat().st_size:
            name = re.sub(r"[0-9a-f]{6,}|\d+", "#", str(path.relative_to(folder)))
            paths_by_kind.setdefault(name, []).append(path)
    return paths_by_kind


def assert_damage_is_reported(problem: SmileError) -> bool:
    """Whether it says that something is damaged; else it is raised."""
    if problem.diagnostics[0].code not in DAMAGE_CODES:
        raise problem
    return True


def recorded_at(folder: Path) -> Recorded | None:
    """None if reading the whole log reports that it is damaged: views may continue from a state that includes the
    damaged part."""
    try:
        return Recorded(folder / "log", floor.compiled())
    except SmileError as problem:
        assert_damage_is_reported(problem)
        return None


def start_and_check(broker: BrokerProcess) -> None:
    """Starts a broker on such a directory: either it says what is damaged, or it shows what the log says."""
    try:
        broker.start()
    except DidNotStart:
        assert broker.wait() == 1
        assert re.search(r"E\d{3}", broker.log_text), broker.log_text
        assert "Traceback" not in broker.log_text
        return
    shown_views: Shown = {}
    with broker.http() as client:
        for view in floor.VIEWS:
            answer = client.get(f"/views/{view}").json()
            horizons = {stream: int(tick) for stream, tick in answer["progress"].items()}
            shown_views[view] = horizons, {key_of(row): row for row in answer["rows"]}
    if broker.engine == "local":
        assert broker.stop() == 0
    else:
        broker.kill()  # to end in order, Java would have to be started first
    assert "Traceback" not in broker.log_text
    recorded = recorded_at(broker.data_path)
    assert recorded is None or false_views(shown_views, recorded) == []
