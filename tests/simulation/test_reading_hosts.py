"""Which hosts of a stream ask the others for it: nobody truncates its log before they have done so."""

from dataclasses import replace

import pytest

from smile.algebra import mmpl
from tests.simulation.programs import own_streams_read, reading_hosts

STREAM = mmpl.StreamDef("S", "t", (), many_origins=True)
HOME = mmpl.Program((STREAM,), (), ())
HOST = mmpl.Program((mmpl.StreamDef("S", "t", (), many_origins=True, home="b0"),), (), ())
VIEW = mmpl.ViewDef("V", mmpl.RelationRef("S"))


def importer(broker: str) -> mmpl.Program:
    return mmpl.Program((), (), (), (mmpl.ImportDef("S", broker, "S"),))


@pytest.mark.parametrize(
    ("programs", "readers"),
    [
        ((HOME, HOST), set()),
        ((HOME, replace(HOST, views=(VIEW,))), {0, 1}),
        ((HOME, replace(HOST, subscriptions=("S",))), {0, 1}),
        ((replace(HOME, views=(VIEW,)), HOST), {0}),
        ((HOME, HOST, HOST, importer("b2")), {0, 2}),
        ((HOME, HOST, importer("b0"), importer("b2")), {0}),
    ],
)
def test_the_hosts_that_read(programs: tuple[mmpl.Program, ...], readers: set[int]) -> None:
    assert reading_hosts(programs, "S") == readers


def test_streams_with_one_origin_are_not_asked_for() -> None:
    program = mmpl.Program((STREAM, mmpl.StreamDef("T", "t", ())), (), ("S", "T"))
    assert own_streams_read(program) == {"S"}
