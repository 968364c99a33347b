"""A TCP proxy between two brokers that delays, stalls and cuts connections."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from tests.processes import WAIT_S, free_port


@dataclass
class TcpProxy:
    """Listens on `port` and forwards to `target_port`. The attributes may be changed at any time."""

    target_port: int
    port: int = field(default_factory=free_port)
    delay_s: float = 0.0
    is_stalled: bool = False
    """Nothing is forwarded, but all connections stay open."""
    is_cut: bool = False
    """New connections are closed at once."""
    bytes_to_target: int = 0
    bytes_from_target: int = 0
    connections: int = 0

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_listening = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_listening.wait(WAIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._loop.stop)
        self._thread.join(WAIT_S)

    def cut(self) -> None:
        """Closes all connections."""
        self._call(self._abort_all)

    def _abort_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    def _call(self, function: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(function)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self.port))
        self._is_listening.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.is_cut:
            writer.transport.abort()
            return
        try:
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, target_writer}
        await asyncio.gather(
            self._forward(reader, target_writer, to_target=True),
            self._forward(target_reader, writer, to_target=False),
            return_exceptions=True,
        )
        self._writers -= {writer, target_writer}

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to_target: bool) -> None:
        try:
            while data := await reader.read(2**16):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                while self.is_stalled:
                    await asyncio.sleep(0.02)
                if to_target:
                    self.bytes_to_target += len(data)
                else:
                    self.bytes_from_target += len(data)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()
