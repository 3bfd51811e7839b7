"""How far the operators of a run have followed their logs, kept in memory, so that it can be told at any time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from streaming.declare import Operator
from streaming.log import Batch
from streaming.operators import OperatorRuntime, Step


@dataclass(frozen=True)
class Lag:
    """Where an operator is in its logs.

    `batches`: those of its logs that it has not followed yet. `watermark`: the least of the logs' as far as it has
    followed them; null where one has none yet, or the operator was behind and has not stepped yet.
    """

    batches: int
    watermark: datetime | None


@dataclass(frozen=True)
class _Place:
    """The newest batch of a log that an operator has followed, -1 for none, and the watermark after it, if known."""

    batch: int = -1
    watermark: datetime | None = None


class Followed:
    """Where each operator of a run is in each of its logs; may be asked from any thread."""

    def __init__(self) -> None:
        self._places: dict[str, dict[str, _Place]] = {}

    def begin(self, runtime: OperatorRuntime, heads: Mapping[str, Batch]) -> None:
        """Look once where an operator is, before its first step; `heads` are the newest batches of the logs."""
        name = runtime.operator.name
        if name not in self._places:
            through = runtime.through()
            self._places[name] = {
                stream: _Place(batch, heads[stream].after.watermark if heads[stream].number <= batch else None)
                for stream, batch in through.items()
                if stream in heads
            }

    def step(self, name: str, step: Step) -> None:
        """The operator of this name has made a step."""
        newest = {stream: batches[-1] for stream, batches in step.batches.items() if batches}
        places = {stream: _Place(batch.number, batch.after.watermark) for stream, batch in newest.items()}
        self._places[name] = self._places[name] | places

    def forget(self, name: str) -> None:
        """Look anew before the next step: the tables of this operator are others now."""
        self._places.pop(name, None)

    def lag(self, operator: Operator, heads: Mapping[str, Batch]) -> Lag | None:
        """How far an operator is behind the newest batches of the logs; None before it was looked at."""
        places = self._places.get(operator.name)
        if places is None:
            return None
        followed = {stream.name: places.get(stream.name, _Place()) for stream in operator.follows}
        behind = (heads[name].number - place.batch for name, place in followed.items() if name in heads)
        marks = [place.watermark for place in followed.values()]
        watermarks = [mark for mark in marks if mark is not None]
        return Lag(
            sum(max(0, batches) for batches in behind), min(watermarks) if len(watermarks) == len(marks) else None
        )
