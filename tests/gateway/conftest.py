from collections.abc import Iterator

import pytest

from smile import limits


@pytest.fixture(scope="package", autouse=True)
def patient() -> Iterator[None]:
    """Requests that wait for a view do so for as long as they may: five seconds are too few on a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "wait_ms_default", limits.wait_ms_max)
        yield
