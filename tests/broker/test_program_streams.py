"""Streams that are added to a running program: its text stays as it is, and its views go on."""

from pathlib import Path

import pytest

from smile.algebra import mmpl
from smile.algebra.printer import print_program
from smile.algebra.types import BYTES, INT, STRING, decimal_type
from smile.broker.broker import Broker
from smile.broker.program_streams import add_streams
from smile.broker.publishing.publication import Publication
from smile.broker.views.condition import ViewCondition
from smile.errors import SmileError
from smile.program import compile_program
from smile.settings import Settings
from smile.source import Source
from tests.processes import WAIT_S

COLUMNS = (("symbol", STRING), ("price", decimal_type(10, 2)), ("Größe b", BYTES), ("select", INT))
QUOTES = mmpl.StreamDef("Stock Quotes", "tick", COLUMNS)
TEXT = "CREATE STREAM A (t: time -> a: int);\nCREATE VIEW V AS SELECT a FROM A;\n"


@pytest.mark.parametrize(
    "source",
    [
        Source("p.smile", TEXT),
        Source("p.smile", TEXT + "SUBSCRIBE V -- without a semicolon"),
        Source("p.mmpl", print_program(mmpl.Program((mmpl.StreamDef("A", "t", (("a", INT),)),), (), ()))),
    ],
)
def test_the_text_stays_and_the_streams_are_there(source: Source) -> None:
    before = compile_program(source).original
    added = add_streams(source, [QUOTES, mmpl.StreamDef("B", "tick", ())])
    assert added.text.startswith(source.text.rstrip())
    after = compile_program(added).original
    assert after.streams == (*before.streams, QUOTES, mmpl.StreamDef("B", "tick", ()))
    if source.name.endswith("smile"):
        read = Source("p.smile", f'{added.text}CREATE VIEW W AS SELECT SYMBOL, tick FROM "Stock Quotes";')
        assert [v.name for v in compile_program(read).original.views if v.name == "W"], "names are found in any case"
    assert (after.views, after.subscriptions) == (before.views, before.subscriptions)


def test_they_are_added_to_a_running_broker(tmp_path: Path) -> None:
    settings = Settings(engine="local")
    broker = Broker.open(tmp_path, Source("p.smile", TEXT), settings)
    assert broker.add_streams([QUOTES]).streams_added == ("Stock Quotes",)
    (tick,) = broker.publish(Publication("Stock Quotes", [("IBM", None, None, 1)])).result(WAIT_S).ticks
    # A reader may wait for what it has published, at a view that does not read it.
    assert broker.view("V").subscribe(ViewCondition(), lambda: None, after={"Stock Quotes": tick}).next_frame(1)
    with pytest.raises(SmileError):
        broker.add_streams([mmpl.StreamDef("A", "tick", (("b", INT),))])
    assert [s.name for s in broker.program.streams] == ["A", "Stock Quotes"]
    broker.stop()
    broker = Broker.open(tmp_path, None, settings)
    assert [s.name for s in broker.program.streams] == ["A", "Stock Quotes"]
    broker.stop()
