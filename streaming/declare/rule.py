"""Row rules: what must be true of a row, or it is rejected."""

from __future__ import annotations

from dataclasses import dataclass

from streaming.base import check_name, settle


@dataclass(frozen=True)
class Rule:
    """A row must satisfy the SQL `condition`; where it is false or null, the row is rejected for `name`.

    Null counts as broken because such a row cannot be judged; write `x is null or ...` for optional columns. A row for
    which the condition cannot be computed, such as `a / b` where `b` is 0, is rejected, too, with the values in the
    reason.
    """

    name: str
    condition: str

    def __post_init__(self) -> None:
        check_name("rule", self.name)
        settle(self, f"rule {self.name!r}")
