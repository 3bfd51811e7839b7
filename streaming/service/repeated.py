"""A thread that does one thing again and again, so that nothing else waits for it, and it for nothing else."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger("tidemark")


class Repeated:
    """Calls `action` at once and then every `seconds`, in a daemon thread of its own.

    What it raises is logged, and the next call comes all the same: a disk that is full for a moment must not silence
    the thread for ever.
    """

    def __init__(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        self._name = name
        self._seconds = seconds
        self._action = action
        self._over = threading.Event()
        self._once_more = False
        self._thread = threading.Thread(target=self._go_on, name=name, daemon=True)

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    def leave(self) -> None:
        """Begin no further call; one that has not come back is left to itself."""
        self._over.set()

    def end(self, within: float) -> None:
        """Call once more, and wait for that at most `within` seconds."""
        self._once_more = True
        self._over.set()
        self._thread.join(within)
        if self._thread.is_alive():
            _log.warning("%s: not done within %.0f s, left to itself", self._name, within)

    def _go_on(self) -> None:
        self._call()
        while not self._over.wait(self._seconds):
            self._call()
        if self._once_more:
            self._call()

    def _call(self) -> None:
        try:
            self._action()
        except Exception as error:
            _log.warning("%s: failed, and is tried again (%s)", self._name, error)
