"""A receiver of webhooks for tests: it remembers what was posted, and answers as it is told."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class Receiver:
    """`answer` returns the status for a body. `posted` has header and body of everything, whatever the answer was."""

    answer: Callable[[dict[str, Any]], int] = lambda _: 200
    posted: list[tuple[dict[str, str], dict[str, Any], int]] = field(default_factory=list)
    url: str = ""

    def taken(self) -> list[dict[str, Any]]:
        """The bodies that it has taken, each message once."""
        by_id = {headers["webhook-id"]: body for headers, body, status in self.posted if status == 200}
        return list(by_id.values())


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = json.loads(text)
            status = receiver.answer(body)
            receiver.posted.append(({**headers, "text": text}, body, status))
            self.send_response(status)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"said\n")

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook?key=hidden"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
