"""Attempts at a batch of whole files, so that nothing is left of one that was given up."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection

from streaming.sinks.places import Place
from streaming.sinks.sink import NumberedBatch


class Attempts:
    """The files of the batch that is being put, written down beforehand, so that none is left of one given up.

    An attempt that died may have cut the batch into other files, of an older declaration, or may never be made again,
    because somebody began the delivery anew.
    """

    def __init__(self, place: Place, delivery: str) -> None:
        self._place = place
        self._path = f"_delivered/{delivery}.putting.json"
        self._may_repeat = True

    def begin(self, batch: NumberedBatch, files: Collection[str], whole: Callable[[], tuple[int, int]]) -> None:
        """Note the files of a batch, and remove what an attempt before this process left and nobody will finish.

        `whole` gives generation and number of the newest batch that is known to be there whole.
        """
        if self._may_repeat:
            self._place.remove({*self._left(batch, whole())} - {*files})
        self._may_repeat = False
        noted = {"generation": batch.generation, "batch": batch.number, "files": sorted(files)}
        self._place.put(self._path, json.dumps(noted).encode())

    def _left(self, batch: NumberedBatch, whole: tuple[int, int]) -> list[str]:
        noted = json.loads(self._place.read(self._path) or b"{}")
        attempted, now = (noted.get("generation", -1), noted.get("batch", -1)), (batch.generation, batch.number)
        # What comes after this batch is of another process, which has taken over.
        is_given_up = attempted == now or whole < attempted < now
        return list(noted["files"]) if noted and is_given_up else []
