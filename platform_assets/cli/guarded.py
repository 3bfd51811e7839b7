"""A command that does not end well ends in one paragraph, or in one line after Ctrl-C, and never in a trace."""

from __future__ import annotations

import warnings

import typer

from platform_assets.cli.command_log import command_log
from platform_assets.cli.failures import print_failure


def run(app: typer.Typer) -> int:
    """Run the command that was typed; returns its exit code."""
    # Dagster calls half of what it documents a beta; its category is not imported, for most commands need no Dagster.
    warnings.filterwarnings("ignore", message=".*is currently in beta")
    with command_log.collecting():
        return _run(app)


def _run(app: typer.Typer) -> int:
    try:
        app(prog_name="tidemark")
    except SystemExit as ended:
        command_log.discard()
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    # Whatever is raised becomes one paragraph here; the trace is in the file that it names.
    except Exception as error:
        return print_failure(error)
    return 0
