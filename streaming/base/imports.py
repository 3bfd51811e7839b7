"""Importing what users write: a module that cannot be imported is a value that says what is wrong where."""

from __future__ import annotations

import importlib
import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType

_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


@dataclass(frozen=True)
class BrokenModule:
    """A module that cannot be used.

    `file` is None where Python finds no such module. `line` is the innermost one of the user's own file that led to the
    error; None where no line is to blame. `reason` is one line.
    """

    module: str
    file: str | None
    line: int | None
    reason: str

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        return f"module {self.module} is broken: {f'{place}: ' if place else ''}{self.reason}"


def import_or_explain(name: str) -> ModuleType | BrokenModule:
    """The module of that name, or what is wrong with it."""
    try:
        return importlib.import_module(name)
    # A module that calls sys.exit() must not end its neighbours either.
    except (Exception, SystemExit) as error:
        file, line = _place(error)
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        reason = f"{type(error).__name__}: {' '.join(text.split()) or 'it says nothing more'}"
        return BrokenModule(name, file or _source_of(name), line, reason)


def import_modules(package: ModuleType) -> Iterator[ModuleType | BrokenModule]:
    """The modules that lie in the package, in the order of their names."""
    for entry in iter_modules(package.__path__):
        yield import_or_explain(f"{package.__name__}.{entry.name}")


def _place(error: BaseException) -> tuple[str | None, int | None]:
    """The file whose code led to the error, and its innermost line there."""
    if isinstance(error, SyntaxError) and error.filename is not None and not error.filename.startswith("<"):
        return error.filename, error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    imported = [frame.filename for frame in frames if frame.name == "<module>"]
    # The first is the module itself, which may be installed; a library that it imports is not the user's to correct.
    own = [file for place, file in enumerate(imported) if place == 0 or not file.startswith(_INSTALLED)]
    if not own:
        return None, None
    return own[-1], [frame.lineno for frame in frames if frame.filename == own[-1]][-1]


def _source_of(name: str) -> str | None:
    """The file of a module that failed before its first line ran."""
    try:
        spec = find_spec(name)
    # A parent package that cannot be imported raises what it likes, and is explained already.
    except Exception:
        return None
    return None if spec is None else spec.origin
