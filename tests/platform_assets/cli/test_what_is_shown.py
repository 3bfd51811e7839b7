"""The names of what `tidemark show` prints of an operator, and of what it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from platform_assets.cli.tables import read_named
from streaming import History, Lake, Pipeline, Tumbling, Windowed, agg
from streaming.base import DeclarationError
from tests.support.customers import CUSTOMERS

SEGMENTS = History("segments", CUSTOMERS, track=("segment",))
BY_DAY = Windowed("by_day", CUSTOMERS, Tumbling("1 day"), {"customers": agg.count()})
PIPELINE = Pipeline(CUSTOMERS, (SEGMENTS, BY_DAY))


def test_what_an_operator_does_not_show_is_told_with_one_that_does(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError) as refused:
        read_named(Lake(str(tmp_path)), PIPELINE, SEGMENTS, "late")
    text = str(refused.value)
    assert "there is no 'late' to show of history 'segments' of 'customers'; there are: current, signed" in text
    assert "Of 'by_day' there is one: add `--view by_day`." in text
    with pytest.raises(DeclarationError, match=r"there are: [a-z, ]*\.$"):
        read_named(Lake(str(tmp_path)), PIPELINE, SEGMENTS, "nothing")
