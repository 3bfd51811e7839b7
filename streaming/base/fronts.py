"""Fronts of rooms: each name is listed once, in the front, and its module is imported when the name is first used."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


class Front(ModuleType):
    """A package whose names are those that its `__init__.py` imports for type checkers, below `TYPE_CHECKING`.

    So a declaration, or a command that only reads, loads neither Spark nor what other rooms need.
    """

    _homes: dict[str, tuple[str, str]]

    def __getattr__(self, name: str) -> Any:
        homes = self.__dict__.get("_homes", {})
        if name not in homes:
            raise AttributeError(f"module {self.__name__!r} has no name {name!r}; it has: {', '.join(sorted(homes))}.")
        module, original = homes[name]
        found = import_module(f"{module}.{original}" if module == self.__name__ else module)
        value = found if module == self.__name__ else getattr(found, original)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing a module binds it to its name in the package, which may be that of a function of the front.
        if isinstance(value, ModuleType) and self._homes.get(name, (self.__name__,))[0] != self.__name__:
            return
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._homes})


def make_front(package: str) -> None:
    """Make a front of the package that is being imported."""
    module = sys.modules[package]
    assert module.__file__ is not None
    source = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    imports = (node for block in source.body if isinstance(block, ast.If) for node in block.body)
    module.__dict__["_homes"] = {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in imports
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    module.__dict__["__all__"] = sorted(module.__dict__["_homes"])
    module.__class__ = Front
