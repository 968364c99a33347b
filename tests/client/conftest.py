from collections.abc import Iterator

import pytest

from tests.client.fake import Fake


@pytest.fixture
def fake() -> Iterator[Fake]:
    server = Fake()
    yield server
    server.close()
