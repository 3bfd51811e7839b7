"""Which of two sources is read now, one of which follows the other, and what waits in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from streaming.base import SourceError
from streaming.lake import Lake
from streaming.sources.backlog import SourceBacklog
from streaming.sources.source import Memory, Source
from streaming.tables import storage

HISTORY, LIVE = "history", "live"


def part_read(memory: Memory) -> str:
    """Which of the two is read; from the end of the history on there is an entry of the other."""
    return LIVE if LIVE in memory else HISTORY


def has_checkpoint(checkpoint: str, name: str) -> bool:
    """Whether there is a checkpoint of one of the two below that of the stream."""
    return any(True for _ in storage.walked(f"{checkpoint}/{name}", lambda name: not name.startswith(".")))


class ThenBacklog:
    """Counts what waits in the history, and once nothing does, what waits in the other one."""

    def __init__(self, history: Source, live: Source, lake: Lake, checkpoint: str) -> None:
        self._history = history
        self._live = live
        self._lake = lake
        self._checkpoint = checkpoint

    def count(self, memory: Memory) -> SourceBacklog:
        """What waits now; a warning names what came into the history after its end.

        Raises:
            SourceError: the source that is read now does not answer.
        """
        if part_read(memory) == HISTORY:
            waiting = self._in_history(memory.get(HISTORY) or {})
            return waiting if waiting.items else self._in_live({})
        waiting = self._in_live(memory[LIVE] or {})
        return replace(waiting, warning=" ".join(filter(None, (waiting.warning, self._too_late(memory)))))

    def _too_late(self, memory: Memory) -> str:
        # A stream that was restored elsewhere has no checkpoint of the history.
        if not has_checkpoint(self._checkpoint, HISTORY):
            return ""
        try:
            late = self._in_history(memory[HISTORY])
        except SourceError:
            # Once it was read, a history may be removed.
            return ""
        if not late.items:
            return ""
        return (
            f"{late} in {self._history.location(self._lake)} that came after it had been read to its end, and no batch "
            f"takes them: bring them into {self._live.location(self._lake)}."
        )

    @cached_property
    def _in_history(self) -> Callable[[Memory], SourceBacklog]:
        return self._history.backlog(self._lake, f"{self._checkpoint}/{HISTORY}")

    @cached_property
    def _in_live(self) -> Callable[[Memory], SourceBacklog]:
        return self._live.backlog(self._lake, f"{self._checkpoint}/{LIVE}")
