"""Rows survive as blocks, whatever is known of them; bytes that are no block are refused."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from smile.algebra.types import INT, STRING, decimal_type
from smile.analysis.type_analysis import TypeAnalysis
from smile.columns.values import ValueColumn
from smile.engine.local import LocalEngine
from smile.graph.build import build_graph
from smile.kernels.compile import compile_graph
from smile.kernels.delta import Delta, drop_unchanged_rows
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.kernels.row_blocks import check_block, decode_blocks, encode_block
from smile.kernels.row_encoding import MASK, STEPS, decode_rows, encode_rows
from smile.reference.history import History
from tests.kernels.harness import input_batch_between
from tests.random_programs import SEED_ID, random_program, seeds
from tests.reference.histories import Histories


@pytest.mark.parametrize("seed", seeds(40), ids=SEED_ID)
def test_rows_survive(seed: int) -> None:
    """The deltas of all relations of random programs."""
    random = Random(seed)
    program = random_program(random, 3)
    try:
        kernels = compile_graph(build_graph(program, TypeAnalysis(program)), program.log_streams)
    except NotImplementedError:
        return
    histories = Histories(program, random)
    lines = [histories.line() for _ in range(8)]
    engine = LocalEngine(kernels)
    empty = History.from_lines(program)
    engine.advance(input_batch_between(program, empty, empty))
    try:
        result = engine.advance(input_batch_between(program, empty, History.from_lines(program, lines)))
    except NotImplementedError:
        return
    for name, delta in result.deltas.items():
        layout = kernels.inputs[name].layout
        rows = encode_rows(layout, delta.fixed, delta.new)
        blocks = [encode_block(layout, rows, len(delta))] * 2
        decoded, counts = decode_blocks(layout, blocks)
        assert counts == [len(delta)] * 2
        again = decode_rows(layout, decoded)
        twice = delta.take(np.tile(np.arange(len(delta)), 2))
        assert all(again.fixed[c].same(twice.fixed[c]).all() for c in layout.fixed)
        assert not len(drop_unchanged_rows(Delta(again.fixed, twice.new, again.new), True))


LAYOUT = Layout(
    ("k",),
    {"k": STRING},
    {"n": EvolvingColumnLayout("range", INT), "d": EvolvingColumnLayout("range", decimal_type(9, 2))},
)


def encoded(number: int, count: int = 1) -> dict[str, ValueColumn]:
    numbers = ValueColumn(np.array([number] * count, object if abs(number) >= 2**63 else np.int64))
    return {
        ".k": ValueColumn(pa.array(["a"] * count)),
        ".n": numbers,
        ".n.lo": numbers,
        ".d": ValueColumn(np.array([1] * count)),
        MASK: ValueColumn(np.full(count, 5, np.uint8)),
        STEPS: ValueColumn(np.ones(count, np.int64)),
    }


@pytest.mark.parametrize("number", [0, -1, 2**63 - 1, 2**63, -(2**100), 10**50])
def test_integers_beyond_64_bits_survive(number: int) -> None:
    blocks = [encode_block(LAYOUT, encoded(7), 1), encode_block(LAYOUT, encoded(number), 1)]
    rows, _ = decode_blocks(LAYOUT, blocks)
    assert rows[".n"].data.tolist() == rows[".n.lo"].data.tolist() == [7, number]
    assert ".n.hi" not in rows and rows[".d"].data.tolist() == [1, 1]


def test_large_blocks_are_compressed() -> None:
    assert len(encode_block(LAYOUT, encoded(3, 10_000), 10_000)) < 60_000


def test_wrong_bytes_are_refused() -> None:
    block = encode_block(LAYOUT, encoded(3), 1)
    assert check_block(LAYOUT, block) == 1
    other = encode_block(Layout(("k",), {"k": STRING}), encoded(3), 1)
    without_mask = encode_block(LAYOUT, {n: c for n, c in encoded(3).items() if n != MASK}, 1)
    for wrong in (b"", b"\0", b"\2" + block[1:], block[:50], b"\0" + bytes(200), other, without_mask):
        with pytest.raises(ValueError, match="row"):
            check_block(LAYOUT, wrong)
