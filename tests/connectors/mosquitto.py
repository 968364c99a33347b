"""A real MQTT broker for tests: Mosquitto, on a free port of this machine, with sessions that survive its restart."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.processes import free_port, wait_until

PROGRAM = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


@dataclass
class Mosquitto:
    folder: Path
    port: int
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> None:
        assert PROGRAM is not None
        self.folder.mkdir(exist_ok=True)
        config = self.folder / "mosquitto.conf"
        config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\nuser root\n"
            f"persistence_location {self.folder}/\nmax_queued_messages 100000\nautosave_interval 1\n"
            "autosave_on_changes true\n"
        )
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen([PROGRAM, "-c", str(config)], stdout=log, stderr=log)
        wait_until(self._listens, "Mosquitto does not listen")

    def _listens(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """It stores its sessions."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)
            self.process = None

    def publish(self, topic: str, *payloads: str, qos: int = 1, retain: bool = False) -> None:
        """Returns when Mosquitto has all of them."""
        client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        try:
            for message in [client.publish(topic, payload, qos, retain) for payload in payloads]:
                message.wait_for_publish(60)
        finally:
            client.disconnect()
            client.loop_stop()


@contextmanager
def running_mosquitto(folder: Path) -> Iterator[Mosquitto]:
    if PROGRAM is None:
        pytest.skip("Mosquitto is not installed: apt-get install mosquitto")
    broker = Mosquitto(folder, free_port())
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()
