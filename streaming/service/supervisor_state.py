"""The state of a pipeline as its supervisor tells it: in a file for everybody, and to whoever listens."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from datetime import datetime

from streaming.service.status import SUPERVISOR, ControlFolder, State, SupervisorStatus

_ROOM = 64 * 1024
_log = logging.getLogger("tidemark")


class SupervisorState:
    """The newest status of the supervisor of `pipeline`; `on_state` is told of each change of the state."""

    def __init__(
        self,
        pipeline: str,
        control: ControlFolder,
        on_state: Callable[[SupervisorStatus], None],
        now: Callable[[], datetime],
    ) -> None:
        self._pipeline = pipeline
        self._control = control
        self._on_state = on_state
        self._now = now
        self._unwritten = False
        self.status = SupervisorStatus(state="stopped", since=now(), supervisor=os.getpid(), host=socket.gethostname())

    @property
    def is_final(self) -> bool:
        """Whether nothing will change it any more."""
        return self.status.state in ("stopped", "failed")

    def change(self, state: State, **changes: object) -> None:
        """Go over to `state`, with other fields of the status."""
        before = self.status
        since = before.since if state == before.state else self._now()
        self.update(state=state, since=since, **{"next_start": None, **changes})
        if state != before.state:
            _log.info("%s", state)
            self._on_state(self.status)

    def update(self, **changes: object) -> None:
        """Change fields of the status, and write it."""
        self.status = self.status.model_copy(update=changes)
        self._write()

    def write_if_unwritten(self) -> None:
        """Try again what could not be written: a full disk must not end who waits for its end."""
        if self._unwritten:
            self._write()

    def _write(self) -> None:
        try:
            self._control.write(SUPERVISOR, self.status, _ROOM)
        except OSError as error:
            if not self._unwritten:
                _log.warning("the state could not be written (%s)", error)
            self._unwritten = True
        else:
            self._unwritten = False
