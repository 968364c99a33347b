"""Hashes cut to two bits, so that most rows of a table, a group or a join share theirs with other rows.

Different keys with equal hashes are too rare to be drawn. The code that tells them apart would never run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from smile.columns import hashing
from smile.kernels import delta
from smile.state import run

LEFT_BITS = 0b11


@contextmanager
def colliding_hashes() -> Iterator[None]:
    column_hashes, mix_bits = hashing._column_hashes, hashing.mix_bits
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing, "_column_hashes", lambda column: _cut(column_hashes(column)))
        patch.setattr(hashing, "mix_bits", lambda bits: _cut(mix_bits(bits)))
        for module in (delta, run):
            patch.setattr(module, "is_injective", lambda _key: False)
        yield


def _cut(hashes: Any) -> Any:
    return hashes & hashes.dtype.type(LEFT_BITS)
