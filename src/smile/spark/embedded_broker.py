"""A broker in the driver's process, whose views run in the user's Spark session. It is served like any other."""

import threading
from contextlib import ExitStack
from pathlib import Path

from smile.broker.broker import Broker
from smile.engine.spark.host import SparkHost
from smile.errors import error
from smile.gateway.access import ACCESS_FILE, Access
from smile.gateway.links.description_client import DescriptionClient
from smile.gateway.serve import GatewayServer, open_listener, quiet_libraries, server_url
from smile.settings import Settings
from smile.source import Source

_START_S_MAX = 60.0


class EmbeddedBroker:
    """Serves when it is constructed, in a thread of its own."""

    def __init__(self, source: Source, settings: Settings, host: SparkHost) -> None:
        quiet_libraries()
        data = Path(settings.data)
        with ExitStack() as stack:
            listener = stack.enter_context(open_listener(settings))
            self.url = server_url(settings, listener)
            access = Access(data / ACCESS_FILE, settings.requires_tokens)
            stack.callback(access.close)
            descriptions = DescriptionClient(settings.brokers)
            self.broker = Broker.open(data, source, settings, fetch_description=descriptions.fetch, spark=host)
            stack.callback(self.broker.stop)
            descriptions.find_neighbours = lambda: self.broker.links.neighbours
            self._server = GatewayServer(self.broker, settings, access, lambda _: None, url=self.url)
            run = self._server.run
            self._thread = threading.Thread(target=lambda: run(sockets=[listener]), name="gateway", daemon=True)
            self._thread.start()
            stack.callback(self._stop_server)
            if not self._server.ready.wait(_START_S_MAX):
                raise error("E106", f"the broker does not listen at {self.url}")
            self._stack = stack.pop_all()

    def _stop_server(self) -> None:
        self._server.stop()
        self._thread.join()

    def stop(self) -> None:
        """Returns when everything that was published is in the log. It may be called again."""
        self._stack.close()
