"""Where tests are skipped because a program is missing."""

import pytest

from tests.browser import skip_without


@pytest.mark.parametrize(
    ("path", "environment", "is_skipped"),
    [
        (None, {}, True),
        (None, {"CI": "true"}, False),
        ("/usr/bin/node", {}, False),
    ],
)
def test_in_continuous_integration_nothing_is_skipped(
    path: str | None, environment: dict[str, str], is_skipped: bool
) -> None:
    assert skip_without(path, "nodejs", environment).mark.args == (is_skipped,)
