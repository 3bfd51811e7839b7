"""What an audit finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """How one law fares: what was counted (`checked`), how many of them break it, and in words what was compared.

    `advice` says what to do about what breaks it, where that is known. `independent`: what must be was computed by
    another engine, without the code that computed what is.
    """

    law: str
    subject: str
    checked: int
    broken: int
    compared: str
    advice: str = ""
    independent: bool = False

    @property
    def holds(self) -> bool:
        """Whether nothing breaks the law."""
        return self.broken == 0
