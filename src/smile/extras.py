"""The parts of the distribution that are installed only if they are asked for: its extras.

`smile-pubsub` alone is the client. Everything else imports its libraries when it is used, and says which extra has a
library that is missing.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from smile.errors import SmileError, error

DISTRIBUTION: Final = "smile-pubsub"

EXTRAS: Final[Mapping[str, frozenset[str]]] = {
    "cli": frozenset("httpx msgspec prompt_toolkit rich sqlglot typer".split()),
    "broker": frozenset(
        "grpc httptools lark numpy prometheus_client pyarrow starlette tzdata uvicorn uvloop z3".split()
    ),
    "spark": frozenset({"pyspark"}),
    "postgres": frozenset({"psycopg"}),
    "connectors": frozenset({"deltalake", "paho"}),
    "lsp": frozenset({"lsprotocol", "pygls"}),
    "frames": frozenset("numpy pandas polars pyarrow".split()),
}
"""The modules of the libraries that each extra adds to those that it includes: `broker` includes `cli`, `spark`,
`postgres`, `connectors` and `lsp` include `broker`. Without a further reason, a module belongs to the first that has
it."""


def missing_library_error(missing: ModuleNotFoundError, extra: str | None = None) -> SmileError | None:
    """What to install. None if no extra has the library: then something else is wrong. A library may be in several
    extras: `extra` is the one that what was called belongs to."""
    library = (missing.name or "").partition(".")[0]
    known = next((name for name, modules in EXTRAS.items() if library in modules), None)
    if known is None:
        return None
    return _not_installed_error(library, extra or known)


def _not_installed_error(library: str, extra: str) -> SmileError:
    hint = f'Install it: pip install "{DISTRIBUTION}[{extra}]".'
    return error("E167", f"this needs {library}, which is not installed", hint=hint)


def require_extra(extra: str) -> None:
    """Raises E167 if a library of the extra is not installed. Nothing is imported, so it takes no time."""
    for library in sorted(EXTRAS[extra]):
        if find_spec(library) is None:
            raise _not_installed_error(library, extra)


@contextmanager
def libraries_of(extra: str) -> Iterator[None]:
    """Around imports: a missing library is reported with the extra that has it."""
    try:
        yield
    except ModuleNotFoundError as missing:
        problem = missing_library_error(missing, extra)
        if problem is None:
            raise
        raise problem from None
