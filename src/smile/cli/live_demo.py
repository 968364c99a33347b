"""What demos in a terminal share: clients of several brokers, and the keys that are pressed."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

from smile.client import AsyncClient, connect_async


@asynccontextmanager
async def connected_clients(urls: Mapping[str, str]) -> AsyncIterator[dict[str, AsyncClient]]:
    clients = {name: await connect_async(url) for name, url in urls.items()}
    try:
        yield clients
    finally:
        for client in clients.values():
            await client.close()


@contextmanager
def pressed_keys(press: Callable[[str], None]) -> Iterator[None]:
    """Calls `press` with each key, without waiting for the end of a line."""
    if not sys.stdin.isatty():
        yield
        return
    import termios  # noqa: PLC0415  # only with a terminal
    import tty  # noqa: PLC0415

    loop, file = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(file)
    tty.setcbreak(file)
    loop.add_reader(file, lambda: press(sys.stdin.read(1)))
    try:
        yield
    finally:
        loop.remove_reader(file)
        termios.tcsetattr(file, termios.TCSADRAIN, before)
