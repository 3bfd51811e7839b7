"""The end of a command that fails: one paragraph on the terminal, the trace in a file, and an exit code."""

from __future__ import annotations

import json
import sys
import traceback

from rich.console import Console
from rich.text import Text

from platform_assets.cli.command_log import command_log
from platform_assets.cli.exit_codes import ExitCode
from platform_assets.cli.interrupts import interrupted_line
from quality.errors import GateClosed
from streaming.base import TidemarkError


def print_interrupt(interrupt: KeyboardInterrupt) -> ExitCode:
    """Tell in one line that Ctrl-C has ended the command; returns its exit code."""
    _print(str(interrupt) or interrupted_line())
    return ExitCode.INTERRUPTED


def print_failure(error: Exception) -> ExitCode:
    """Tell what went wrong and what to do; where the text cannot tell all, the trace goes to a file that is named.

    With `--json` the error is a document on stdout, too. For a gate that is closed it is the report's own.

    Returns the exit code of the command.
    """
    told_all = isinstance(error, TidemarkError) and error.__cause__ is None
    if told_all:
        command_log.discard()
    else:
        command_log.write("".join(traceback.format_exception(error)))
    text = str(error).strip() or "(it says nothing more)"
    if not isinstance(error, TidemarkError):
        text = _explained(error) or (
            f"{text.splitlines()[0]} This was not foreseen: it is a defect of Tidemark, or of code that a pipeline "
            "brings; report it with the trace."
        )
    if "--json" in sys.argv and isinstance(error, TidemarkError) and not isinstance(error, GateClosed):
        print(json.dumps({"error": error.to_json()}))
    code = f" [{error.code}]" if isinstance(error, TidemarkError) else ""
    trace = "" if told_all else f" The trace is in {command_log.file}."
    _print(Text.assemble((f"{type(error).__name__}:", "bold red"), f" {text}{code}{trace}"))
    return exit_code(error)


def exit_code(error: Exception) -> ExitCode:
    """The exit code of a command that an error has ended."""
    if isinstance(error, GateClosed):
        return ExitCode.GATE_CLOSED
    return ExitCode.FAILED if isinstance(error, TidemarkError) or _explained(error) else ExitCode.DEFECT


def _explained(error: Exception) -> str | None:
    """The meaning of an error of Spark or of a table's files; None where it is none that is known."""
    # Most commands end well, and those that need no Spark should not wait for it to be imported.
    from streaming.service import explain_known

    return explain_known(str(error), "the command")


def _print(text: str | Text) -> None:
    Console(stderr=True, markup=False, highlight=False).print(text, soft_wrap=True)
