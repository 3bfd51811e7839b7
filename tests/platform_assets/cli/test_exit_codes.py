"""A script can tell from the exit code what became of a command."""

from __future__ import annotations

import pytest

from platform_assets.cli.exit_codes import ExitCode, table_of_codes
from platform_assets.cli.failures import exit_code
from platform_assets.errors import BadDay
from quality.errors import GateClosed, Reason
from streaming.base.errors import LeaseError, NotBuiltYet

CLOSED = GateClosed([Reason("missing", "flights/log", 1, "unique", None, "it has no verdict")], "Judge first.")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LeaseError("held"), ExitCode.FAILED),
        (NotBuiltYet("nothing"), ExitCode.FAILED),
        (BadDay("no day"), ExitCode.FAILED),
        (CLOSED, ExitCode.GATE_CLOSED),
        (ZeroDivisionError("1 / 0"), ExitCode.DEFECT),
    ],
)
def test_what_ended_a_command_is_told_apart(error: Exception, code: ExitCode) -> None:
    assert exit_code(error) is code


def test_no_two_outcomes_share_a_code_and_help_lists_all() -> None:
    assert [int(code) for code in ExitCode] == [0, 1, 2, 3, 4, 5, 70, 130]
    assert [line.split()[0] for line in table_of_codes().splitlines()[1:]] == [str(int(code)) for code in ExitCode]
