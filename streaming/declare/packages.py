"""The packages that settings name, in which a project keeps what it declares."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Literal

from streaming.base import BrokenModule, DeclarationError, import_modules, import_or_explain
from streaming.lake import Settings, find_project, make_importable

Kind = Literal["pipelines", "suites", "reports"]


def packages(kind: Kind) -> list[str]:
    """The names of the packages that hold declarations of this kind; Python finds those of the project from now on."""
    make_importable(find_project())
    return [name.strip() for name in str(getattr(Settings(), kind)).split(",") if name.strip()]


def modules(kind: Kind) -> Iterator[ModuleType | BrokenModule]:
    """Every module in those packages, each importable or with what is wrong with it.

    Raises:
        DeclarationError: a setting names a package that Python does not find.
    """
    for name in packages(kind):
        package = package_of(kind, name)
        if isinstance(package, BrokenModule):
            yield package
        else:
            yield from import_modules(package)


def package_of(kind: Kind, name: str) -> ModuleType | BrokenModule:
    """The package of that name, which a setting names, or what is wrong with its own code.

    Raises:
        DeclarationError: Python does not find it.
    """
    package = import_or_explain(name)
    if isinstance(package, ModuleType) and hasattr(package, "__path__"):
        return package
    if isinstance(package, BrokenModule) and package.file is not None:
        return package
    reason = package.reason if isinstance(package, BrokenModule) else "it is a module"
    raise DeclarationError(
        f"TIDEMARK_{kind.upper()} names {name!r}, which is no package ({reason})", "name a package that Python finds."
    )
