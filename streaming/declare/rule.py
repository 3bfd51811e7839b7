"""Row rules: pure columns that are null for a good row and the reason for a bad one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming.base import DeclarationError, check_name, check_type

if TYPE_CHECKING:
    from streaming.declare.stream import Stream


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


@dataclass(frozen=True, init=False)
class ConditionRule(Rule):
    """A row of a control stream must have in `column` a SQL condition over the columns of the stream `of`.

    One that Spark cannot read, that is neither true nor false, that names what the stream does not have, or that is not
    the same whenever it is asked, rejects the row, with the reason. A function over that stream which has these rules
    (`rules=Pinned(...)`) is told in `key.matching` which of them are true of a row. There a cast or a division that is
    not possible is null, so that no condition can stop the stream.

    Raises:
        DeclarationError: `of` is no stream, or `column` no name.
    """

    column: str
    of: Stream

    def __init__(self, name: str, column: str, of: Stream) -> None:
        check_type(f"the column of rule {name!r}", column, str, "the name of the column that has conditions")
        if not hasattr(of, "types"):
            raise DeclarationError(f"of= of rule {name!r} is {of!r}; write the stream that its conditions are about.")
        values = {"name": name, "condition": f"`{column}` is not null", "column": column, "of": of}
        for field, value in values.items():
            object.__setattr__(self, field, value)
        self.__post_init__()
