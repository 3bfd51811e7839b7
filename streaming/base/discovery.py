"""Finds what modules declare in a variable of an agreed name, and keeps apart what cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Generic, TypeVar

from streaming.base.imports import BrokenModule

Declared = TypeVar("Declared")


@dataclass(frozen=True)
class Discovery(Generic[Declared]):
    """The declarations that can be used, each once, and the modules that cannot."""

    declared: tuple[Declared, ...]
    broken: tuple[BrokenModule, ...]


def discover(
    modules: Iterable[ModuleType | BrokenModule],
    variable: str,
    kind: type[Declared],
    conflict: Callable[[Declared, Declared], str | None],
) -> Discovery[Declared]:
    """What the modules declare in `variable`; modules without one declare nothing.

    `conflict` says what two declarations both do, and what to do about it, where they cannot stand side by side. Both
    stay out then, because which of them a module's name sorts first must not decide whose data goes on.
    """
    broken: dict[str, BrokenModule] = {}
    declared: dict[str, Declared] = {}
    files: dict[str, str | None] = {}
    for module in modules:
        if isinstance(module, BrokenModule):
            broken[module.module] = module
        elif isinstance(declaration := getattr(module, variable, None), kind):
            declared[module.__name__] = declaration
            files[module.__name__] = getattr(module, "__file__", None)
    for name in declared:
        reason = _conflict_of(name, declared, conflict)
        if reason is not None:
            broken[name] = BrokenModule(name, files[name], None, reason)
    # Modules that hand on another module's declaration do not declare it again.
    usable = {id(declaration): declaration for name, declaration in declared.items() if name not in broken}
    return Discovery(tuple(usable.values()), tuple(broken.values()))


def _conflict_of(
    name: str, declared: Mapping[str, Declared], conflict: Callable[[Declared, Declared], str | None]
) -> str | None:
    for other, rival in declared.items():
        if rival is declared[name]:
            continue
        what = conflict(declared[name], rival)
        if what is not None:
            return f"it and module {other} both {what}"
    return None
