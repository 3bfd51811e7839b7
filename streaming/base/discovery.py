"""Finds what modules declare in a variable of an agreed name, and keeps apart what cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Generic, Protocol, TypeVar

from streaming.base.imports import BrokenModule


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Declared = TypeVar("Declared", bound=_Named)


@dataclass(frozen=True)
class Discovery(Generic[Declared]):
    """The declarations that can be used, each once, and the modules that cannot."""

    declared: tuple[Declared, ...]
    broken: tuple[BrokenModule, ...]

    @property
    def by_name(self) -> dict[str, Declared]:
        """The declarations that can be used."""
        return {declaration.name: declaration for declaration in self.declared}

    def find(self, name: str, kind: str, place: str, error: type[Exception]) -> Declared:
        """The declaration of that name; `kind` is what it is called, `place` where modules declare one.

        Raises:
            error: there is none; the text lists those there are, then the broken modules, one a line.
        """
        declared = self.by_name
        if name not in declared:
            text = (
                f"there is no {kind} {name!r}; declared are: {', '.join(sorted(declared)) or 'none'}. A {kind} is a "
                f"module with a variable `{kind}` in {place}."
            )
            raise error("\n".join([text, *map(str, self.broken)]))
        return declared[name]


def discover(
    modules: Iterable[ModuleType | BrokenModule],
    variable: str,
    kind: type[Declared],
    conflict: Callable[[Declared, Declared], str | None],
) -> Discovery[Declared]:
    """The declarations that the modules make in `variable`; modules without one declare nothing.

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
