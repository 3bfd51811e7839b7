"""Runs of Dagster that compute give way to streams."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from platform_assets.resources import give_way


def niceness_after_giving_way() -> int:
    give_way()
    return os.nice(0)


@pytest.mark.processes
def test_a_run_in_a_process_of_its_own_gives_way_to_streams() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as launched:
        assert launched.submit(niceness_after_giving_way).result() == os.nice(0) + 5


def test_a_run_in_the_process_of_a_command_keeps_its_priority() -> None:
    assert niceness_after_giving_way() == os.nice(0)
