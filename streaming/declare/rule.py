"""Row rules: what must be true of a row, and what happens to a row of which it is not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from streaming.base import check_name, settle

OnViolation = Literal["reject", "warn", "stop"]


@dataclass(frozen=True)
class Rule:
    """A row must satisfy the SQL `condition`; `on_violation` says what happens where it is false or null.

    `"reject"`: the row is rejected for `name`. `"warn"`: the row stays valid, its log has the name of the rule in
    `_warned`, and it is counted. `"stop"`: the stream stops before the batch, of which nothing is committed; the error
    names the rows, and once they or the rule are corrected the stream goes on with that batch. A row that is rejected
    anyway neither warns nor stops.

    Null counts as broken because such a row cannot be judged; write `x is null or ...` for optional columns. A row for
    which the condition cannot be computed, such as `a / b` where `b` is 0, breaks the rule, too; where it is rejected
    for that, the reason has the values.
    """

    name: str
    condition: str
    on_violation: OnViolation = field(default="reject", kw_only=True)

    def __post_init__(self) -> None:
        check_name("rule", self.name)
        settle(self, f"rule {self.name!r}")

    @property
    def rejects(self) -> bool:
        """True if a row that breaks the rule is rejected; the others are watched, and stay valid."""
        return self.on_violation == "reject"
