"""The exit codes of commands: the one table, which `tidemark --help` prints."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit code of a command, and in `meaning` what it tells a script."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        """A code with its meaning."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    DONE = 0, "done"
    FAILED = 1, "it could not be done; stderr says why, and what to do"
    USAGE = 2, "typed wrongly: no such command, option or value (for plan that is 1); plan, apply: changes are pending"
    LAW_BROKEN = (
        3,
        "audit, demo: a law is broken; doctor: something is; why: a number is not what its rows give; "
        "contract: it would break somebody",
    )
    GATE_CLOSED = 4, "report: the gate is closed, nothing was published"
    STREAM_FAILED = 5, "up, down, pause, resume, restart: a stream has failed, or drained without a paused operator"
    DEFECT = 70, "a defect of Tidemark, or of code that a pipeline brings"
    INTERRUPTED = 130, "Ctrl-C; what was committed stays"


def table_of_codes() -> str:
    """Every code and its meaning, as `tidemark --help` ends."""
    return "\n".join(["Exit codes", *(f"{code:>5}  {code.meaning}" for code in ExitCode)])
