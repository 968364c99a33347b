"""The pictures of concepts are those of the programs as they are now."""

import itertools
import re
from xml.etree import ElementTree

from tools.concepts import EVENTS, concept_pictures, replayed


def test_pictures_are_up_to_date() -> None:
    for path, drawn in concept_pictures().items():
        assert path.read_text() == drawn, "run `make reference`"
        ElementTree.fromstring(drawn)
    network = next(text for path, text in concept_pictures().items() if "network" in path.name)
    assert len(re.findall("marker-end", network)) == 4


def test_the_bounds_narrow_and_meet() -> None:
    known = replayed()
    assert all(a.lowest <= b.lowest and b.highest <= a.highest for a, b in itertools.pairwise(known))
    best = max(points for _, points in EVENTS)
    assert [k.is_final for k in known][-1] and known[-1].lowest == known[-1].highest == best
