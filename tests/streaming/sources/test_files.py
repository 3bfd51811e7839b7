"""Files as a source."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from streaming import Files
from streaming.lake.lake import Lake
from tests.streaming.sources.contract import SourceCase, SourceContract
from tests.support.feeds import land


class FilesCase(SourceCase):
    def __init__(self, lake: Lake) -> None:
        self.source = Files("landing", files_per_batch=2)
        self._landing = Path(self.source.location(lake))

    def deliver(self, *payloads: bytes) -> str:
        return land(self._landing, payloads).name

    def change(self, name: str) -> None:
        with (self._landing / name).open("ab") as file:
            file.write(b"more\n")

    def lose(self, name: str) -> None:
        (self._landing / name).unlink()

    def remove(self) -> None:
        shutil.rmtree(self._landing)


class TestFiles(SourceContract):
    @pytest.fixture
    def case(self, lake: Lake) -> FilesCase:
        return FilesCase(lake)
