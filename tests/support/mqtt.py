"""A broker of MQTT of one's own, mosquitto, for a test session; where that program is not installed there is none."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from platform_assets.demo.feeds import free_port
from tests.support.waiting import until

_STARTS_WITHIN = 20.0


@dataclass
class Broker:
    """A broker that can be killed and started again, with what it has kept of its sessions."""

    folder: Path
    port: int
    settings: str = ""
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
        if program is None:
            pytest.skip("there is no program mosquitto")
        settings = self.folder / "mosquitto.conf"
        # Kept at each change, so that a kill loses none.
        kept = f"persistence true\npersistence_location {self.folder}/\nautosave_interval 1\nautosave_on_changes true\n"
        settings.write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\nuser root\n{kept}{self.settings}")
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([program, "-c", str(settings)], stdout=log, stderr=log)
        until(lambda: not self._runs or self._listens, "listening", _STARTS_WITHIN)
        assert self._runs, f"mosquitto does not start: {(self.folder / 'log').read_text()[-1_000:]}"

    @property
    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def _listens(self) -> bool:
        with suppress(OSError), create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def end(self, *, killed: bool = False) -> None:
        """End it, or kill it."""
        if self._process is not None:
            self._process.kill() if killed else self._process.terminate()
            self._process.wait(20)

    def forget(self) -> None:
        """Remove what it has kept of its sessions; it must not run."""
        (self.folder / "mosquitto.db").unlink()

    def publish(self, topic: str, *payloads: bytes, qos: int = 1, retain: bool = False) -> None:
        """Publish messages, and wait until the broker has them."""
        client = Client(CallbackAPIVersion.VERSION2)
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        try:
            for payload in payloads:
                client.publish(topic, payload, qos, retain).wait_for_publish(20)
        finally:
            client.loop_stop()
            client.disconnect()


@contextmanager
def broker(folder: Path) -> Iterator[Broker]:
    """A running one."""
    running = Broker(folder, free_port())
    running.start()
    try:
        yield running
    finally:
        running.end()
