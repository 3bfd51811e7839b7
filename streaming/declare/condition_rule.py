"""The rule of a control stream whose rows hold conditions about the rows of another stream."""

from __future__ import annotations

from dataclasses import dataclass

from streaming.base import check_type
from streaming.declare.rule import Rule
from streaming.declare.stream import Stream


@dataclass(frozen=True, init=False)
class ConditionRule(Rule):
    """A row of a control stream must have in `column` a SQL condition over the columns of the stream `of`.

    One that Spark cannot read, that is neither true nor false, that names what the stream does not have, or that is not
    the same whenever it is asked, rejects the row, with the reason. A function over that stream which has these rules
    (`rules=Pinned(...)`) is told in `key.matching` which of them are true of a row. There what cannot be computed of a
    row is null, so that no condition can stop the stream.

    Raises:
        DeclarationError: `of` is no stream, or `column` no name.
    """

    column: str
    of: Stream

    def __init__(self, name: str, column: str, of: Stream) -> None:
        check_type(f"the column of rule {name!r}", column, str, "the name of the column that has conditions")
        check_type(f"of= of rule {name!r}", of, Stream, "the stream that its conditions are about")
        condition = f"`{column}` is not null"
        values = {"name": name, "condition": condition, "on_violation": "reject", "column": column, "of": of}
        for field, value in values.items():
            object.__setattr__(self, field, value)
        self.__post_init__()
