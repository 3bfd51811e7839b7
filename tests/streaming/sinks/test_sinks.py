"""The contract of a sink, on the smallest one there is: a folder of files that are put whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from streaming.sinks.sink import NumberedBatch, RefusedRow, Sink
from tests.streaming.sinks.contract import LAWS, Target


class Folder(Sink):
    """A file per batch, named by its idempotency key: putting it again replaces it by itself."""

    guarantee = "exactly once"

    def __init__(self, root: Path) -> None:
        self.root = root

    def delivered_through(self, delivery: str, generation: int) -> int:
        return max((int(path.stem) for path in (self.root / delivery / str(generation)).glob("*.json")), default=-1)

    def deliver(self, batch: NumberedBatch) -> Sequence[RefusedRow]:
        numbers = batch.rows["number"].to_pylist()
        target = self.root / f"{batch.key}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden = target.with_suffix(".partial")
        hidden.write_text(json.dumps([number for number in numbers if number >= 0]))
        hidden.replace(target)
        return [RefusedRow(place, "negative") for place, number in enumerate(numbers) if number < 0]


class Forgetful(Folder):
    """One that appends: each attempt adds its rows once more."""

    def deliver(self, batch: NumberedBatch) -> Sequence[RefusedRow]:
        attempt = len(list(self.root.rglob("*.json")))
        return super().deliver(NumberedBatch(batch.delivery, batch.generation, attempt, batch.rows))


def target(root: Path, kind: type[Folder] = Folder) -> Target:
    def numbers() -> list[int]:
        return [number for path in root.rglob("*.json") for number in json.loads(path.read_text())]

    return Target(lambda: kind(root), numbers, refused=-1)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_folder_of_whole_files_keeps_the_contract(law: Callable[[Target], None], tmp_path: Path) -> None:
    law(target(tmp_path))


def test_the_contract_sees_a_sink_that_delivers_twice(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        LAWS[0](target(tmp_path, Forgetful))


def test_the_same_number_of_another_generation_is_another_batch() -> None:
    keys = {NumberedBatch("numbers", generation, 7, None).key for generation in (0, 1)}
    assert len(keys) == 2
