"""Which commands `tidemark` has. What one of them needs is imported when it is typed, so that help is there at once."""

from __future__ import annotations

import ast
import gc
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from platform_assets.cli.exit_codes import ExitCode, table_of_codes

COMMANDS = {
    "feed": "pipelines",
    "run": "pipelines",
    "correct": "pipelines",
    "repair": "repair",
    "retract": "retract",
    "retractions": "retract",
    "redeliver": "redeliver",
    "plan": "plan",
    "apply": "plan",
    "rebuild": "rebuild",
    "drop": "rebuild",
    "savepoint": "savepoints",
    "savepoints": "savepoints",
    "restore": "savepoints",
    "fork": "savepoints",
    "erase": "erase",
    "show": "show",
    "sql": "sql",
    "changed": "changed",
    "catalog": "catalog",
    "contract": "contract",
    "explain": "explain",
    "why": "why",
    "lateness": "lateness",
    "bench": "bench",
    "audit": "audit",
    "doctor": "doctor",
    "maintain": "pipelines",
    "receive": "receive",
    "up": "streams",
    "status": "status",
    "logs": "status",
    "pause": "streams",
    "resume": "streams",
    "restart": "streams",
    "down": "streams",
    "metrics": "metrics",
    "report": "reports",
    "demo": "demonstration",
    "live": "demonstration",
    "ui": "demonstration",
    "setup": "setup",
    "settings": "settings",
    "init": "scaffold",
    "new": "scaffold",
}
"""Each command, which is a function of its name, and the module beside this one that has it."""

_PANELS = {
    "Bring a pipeline on": ("pipelines", "repair", "retract", "plan", "rebuild", "redeliver", "savepoints", "erase"),
    "Look, check, publish": (
        "show",
        "sql",
        "changed",
        "catalog",
        "contract",
        "explain",
        "why",
        "lateness",
        "bench",
        "audit",
        "doctor",
        "reports",
    ),
    "Streams that run on and on": ("receive", "streams", "status", "metrics"),
    "The demo, and a project of your own": ("demonstration", "setup", "settings", "scaffold"),
}
"""Under which heading help lists the commands of a module."""
_OTHERS = "Other commands"


_USAGE_FAILS = ("plan",)


class Commands(TyperGroup):
    """The commands by name; only the one that is typed is imported."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All, in the order in which help lists them."""
        return sorted(COMMANDS, key=lambda name: [*_PANELS, _OTHERS].index(_panel(name)))

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:
        """The command as help lists it, with its first line alone."""
        if cmd_name not in COMMANDS:
            return None
        return TyperCommand(name=cmd_name, help=_first_line(cmd_name), rich_help_panel=_panel(cmd_name))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that was typed, ready to be run."""
        name, _, rest = super().resolve_command(ctx, args)
        assert name is not None
        single = typer.Typer(add_completion=False)
        single.command(name, cls=_UsageFails if name in _USAGE_FAILS else None)(getattr(_module(COMMANDS[name]), name))
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        return name, get_command(single), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was typed; Ctrl-C prints one line."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise typer.Exit(_module("failures").print_interrupt(interrupt)) from None


class _UsageFails(TyperCommand):
    """A command that fails where it is typed wrongly, as the code of that has another meaning for it."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of what was typed."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except Exception as error:
            # Typer has no public name for the class of these errors.
            if getattr(error, "exit_code", None) == ExitCode.USAGE:
                vars(error)["exit_code"] = int(ExitCode.FAILED)
            raise


app = typer.Typer(cls=Commands, no_args_is_help=True, epilog=table_of_codes())


def _print_versions(asked: bool) -> None:
    if asked:
        for name, version in _module("versions").versions():
            typer.echo(f"{name} {version}")
        raise typer.Exit


@app.callback()
def tidemark(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_versions,
            is_eager=True,
            help="Print the versions of Tidemark and of what it runs on, and exit.",
        ),
    ] = False,
) -> None:
    """Event-time pipelines on Spark whose every number can be recomputed."""


def main() -> None:
    """Run the command; whatever goes wrong is one paragraph on the terminal, and its trace is in a file."""
    # Help and completion import nothing that is slow, and a shell that asks for completions passes no arguments.
    if "--help" in sys.argv or not sys.argv[1:] or sys.argv[1].startswith("-"):
        app(prog_name="tidemark")
    # Nothing that imports make is garbage until the process ends, and to look for it takes a sixth of a short command.
    # In a process that lives on and has done something else before, there may be some.
    if "streaming" not in sys.modules:
        gc.disable()
    sys.exit(_module("guarded").run(app))


def _module(name: str) -> Any:
    return import_module(f"{__package__}.{name}")


def _panel(command: str) -> str:
    return next((panel for panel, modules in _PANELS.items() if COMMANDS[command] in modules), _OTHERS)


def _first_line(command: str) -> str:
    """The first line of a command's docstring, read without importing its module."""
    source = Path(__file__).with_name(f"{COMMANDS[command]}.py").read_text()
    functions = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    docstring = next(ast.get_docstring(node) for node in functions if node.name == command)
    return (docstring or "").partition("\n")[0]
