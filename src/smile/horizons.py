"""The least and the greatest horizon of a stream. A horizon is the tick up to which a stream is known."""

from typing import Final

HORIZON_MIN: Final = -1
"""The horizon of a stream of which nothing is known."""

END: Final = 2**63 - 1
"""The horizon of a stream that is finished."""
