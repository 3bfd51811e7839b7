"""Modules of a user that may not be importable: one that is broken is named and leaves the others alone."""

from __future__ import annotations

import importlib
import sys
import traceback
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True)
class BrokenModule:
    """A module that cannot be used, and why: `reason` is one line, with file and line where there is one."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} is broken: {self.reason}"


def import_or_explain(name: str) -> ModuleType | BrokenModule:
    """The module of that name, or why it cannot be imported."""
    try:
        return importlib.import_module(name)
    # A module is any code, and sys.exit() in one must not end its neighbours either.
    except (Exception, SystemExit) as error:
        return BrokenModule(name, f"{_place(error)}{type(error).__name__}: {' '.join(str(error).split())}")


def _place(error: BaseException) -> str:
    """File and line in the code that is not the importing machinery's or the standard library's, if any."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}: "
    ours = (sys.prefix, sys.base_prefix, "<frozen")
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(ours) and frame.filename != __file__
    ]
    module = next((frame for frame in reversed(frames) if frame.name == "<module>"), None)
    return "" if module is None else f"{module.filename}:{module.lineno}: "
