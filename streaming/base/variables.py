"""Variables of the environment in options, which so hold no secret: `${KAFKA_PASSWORD}`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from streaming.base.errors import StreamingError

_VARIABLE = re.compile(r"\$\{(\w+)\}")


def filled(options: Mapping[str, str], what: str, error: type[StreamingError]) -> dict[str, str]:
    """The options with what the environment has in place of each `${NAME}`; `what` says whose options they are.

    Raises:
        StreamingError: of the class `error`; a variable is not set.
    """

    def variable(match: re.Match[str]) -> str:
        value = os.environ.get(match[1])
        if value is None:
            raise error(
                f"the options of {what} name the variable {match[1]!r}, which is not set",
                "set it in the environment of the process that runs the pipeline.",
            )
        return value

    return {name: _VARIABLE.sub(variable, value) for name, value in options.items()}


def variables_in(text: str) -> list[str]:
    """The names of the variables that a text names, in their order."""
    return _VARIABLE.findall(text)


def names_variables_only(text: str) -> bool:
    """True if a text is nothing but variables, so that it holds no secret itself."""
    return not _VARIABLE.sub("", text)
