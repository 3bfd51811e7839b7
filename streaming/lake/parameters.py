"""The parameters of a declaration that a deployment may set: servers, topics, sizes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from streaming.base import DeclarationError, SettingsError

PREFIX = "TIDEMARK_PARAMETER_"

Value = TypeVar("Value", str, int, float, bool)


@dataclass(frozen=True)
class Parameter:
    """A value that the code declares as `default`, and the text that the deployment has `given`, None for none."""

    name: str
    default: str | int | float | bool
    given: str | None

    @property
    def variable(self) -> str:
        """The variable of the environment that sets it."""
        return PREFIX + self.name.upper()


_declared: dict[str, Parameter] = {}


def parameter(name: str, default: Value) -> Value:
    """A value of a declaration that the environment may set: `TIDEMARK_PARAMETER_<NAME>` wins over `default`.

    `Kafka(parameter("orders_servers", "localhost:9092"), topic="orders")`. What is given is read as a value of the
    default's type. `tidemark settings` shows both, so it is not for secrets.

    Raises:
        DeclarationError: the name cannot be that of a variable, or is declared with another default.
        SettingsError: what is given is no value of that type.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise DeclarationError(
            f"{name!r} cannot name a parameter",
            "use lower-case letters, digits and underscores, a letter first.",
            value=name,
        )
    declaration = Parameter(name, default, os.environ.get(PREFIX + name.upper()))
    original = _declared.setdefault(name, declaration)
    if (original.default, type(original.default)) != (default, type(default)):
        raise DeclarationError(
            f"parameter {name!r} is declared with {default!r} here and with {original.default!r} elsewhere",
            "declare it once and import it, or rename one.",
        )
    _declared[name] = declaration
    return default if declaration.given is None else _read(declaration, type(default))


def declared_parameters() -> Mapping[str, Parameter]:
    """Those that the modules imported so far declare, by name."""
    return dict(sorted(_declared.items()))


def _read(declaration: Parameter, kind: type[Value]) -> Value:
    try:
        return TypeAdapter(kind).validate_strings(declaration.given)
    except ValidationError as error:
        raise SettingsError(
            f"{declaration.variable}={declaration.given!r} is no {kind.__name__}, which parameter {declaration.name!r} "
            f"is ({declaration.default!r} in the code)",
            "correct it, or unset it.",
            field=declaration.variable,
            value=declaration.given,
        ) from error
