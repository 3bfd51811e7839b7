"""Each line of the guide's table of threats names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent


def test_every_line_of_the_table_of_threats_is_shown_by_tests_that_exist() -> None:
    guide = (TESTS.parent / "GUIDE.md").read_text(encoding="utf-8")
    table = guide.partition("| threat | what holds | shown by |\n|---|---|---|\n")[2].partition("\n\n")[0].splitlines()
    assert len(table) > 10
    functions = {
        name for path in TESTS.rglob("test_*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    }
    for line in table:
        named = re.findall(r"`(test_\w+)`", line.rpartition(" | ")[2])
        assert named and set(named) <= functions, line
