"""Row rules: pure columns that are null for a good row and the reason for a bad one."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming.base import check_name, check_type


@dataclass(frozen=True)
class Rule:
    """A row must satisfy the SQL `condition`; where it is false or null, the row is rejected for `name`.

    Null counts as broken because such a row cannot be judged; write `x is null or ...` for optional columns.
    """

    name: str
    condition: str

    def __post_init__(self) -> None:
        check_name("rule", self.name)
        check_type(f"the condition of rule {self.name!r}", self.condition, str, "SQL as text, such as 'amount > 0'")

    def reason(self) -> Column:
        """Null where the row is good, else `name: not (condition)`."""
        held = F.coalesce(F.expr(self.condition), F.lit(False))
        return F.when(~held, F.lit(f"{self.name}: not ({self.condition})"))
