"""Modules of users, imported or with what is wrong with them, and what they declare in a variable of an agreed name."""

from __future__ import annotations

import importlib
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType
from typing import Generic, Protocol, TypeVar

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


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Declared = TypeVar("Declared", bound=_Named)


@dataclass(frozen=True)
class Discovery(Generic[Declared]):
    """The declarations that can be used, each once, and the modules that cannot.

    `places` has the module and the file of declarations, by name, as far as they are known.
    """

    declared: tuple[Declared, ...]
    broken: tuple[BrokenModule, ...]
    places: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)

    @property
    def by_name(self) -> dict[str, Declared]:
        """The declarations that can be used."""
        return {declaration.name: declaration for declaration in self.declared}

    def without(self, refused: Mapping[str, str]) -> Discovery[Declared]:
        """The discovery where some declarations, by name, are among what is broken, each for a reason."""
        if not refused:
            return self
        places = {name: self.places.get(name, (name, None)) for name in refused}
        broken = [BrokenModule(*places[name], None, reason) for name, reason in refused.items()]
        usable = tuple(each for each in self.declared if each.name not in refused)
        return Discovery(usable, (*self.broken, *broken), self.places)

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
    places = {each.name: (name, files[name]) for name, each in declared.items() if id(each) in usable}
    return Discovery(tuple(usable.values()), tuple(broken.values()), places)


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
