"""The declaration of a pinned side input: rules that a control stream sets, changes and removes at run time."""

from __future__ import annotations

from dataclasses import dataclass

from streaming.base import DeclarationError, settle
from streaming.declare.condition_rule import ConditionRule
from streaming.declare.keyed_checks import check_keys_are_exact
from streaming.declare.stream import Stream


@dataclass(frozen=True)
class Pinned:
    """Rules from a control stream: of its valid rows, the newest of each `by`; with `()` the newest of all.

    `version` names the column that tells the newer of two, whichever came first: the greater value wins. Without it
    the one wins that came last. Where the newest is true in the boolean column `removed`, there is no rule: so rules
    may be the rows of a Delta table that is updated, followed by `Table(path, changes_by=("id",))`.

    Each batch of the data says in its commit how far the control stream's log was when the batch was read, and its rows
    see the rules of just that moment, also when they are replayed after rules have changed. Rows from before the first
    such commit see what that one saw. The rules that are in force must fit into the memory of a task: a hundred
    thousand at most.

    Raises:
        DeclarationError: an unknown column, or a key whose equal values are not always the same.
    """

    of: Stream
    by: tuple[str, ...] = ()
    version: str | None = None
    removed: str | None = None

    def __post_init__(self) -> None:
        settle(self, "Pinned")
        object.__setattr__(self, "by", tuple(name.strip("`") for name in self.by))
        check_keys_are_exact(f"by of rules of control stream {self.of.name!r}", self.by, self.of.types)
        if self.version is not None and self.version not in self.of.columns:
            raise DeclarationError(
                f"version={self.version!r} is no column of control stream {self.of.name!r}; its columns are: "
                f"{', '.join(self.of.columns)}.",
                field="version",
                value=self.version,
                stream=self.of.name,
                choices=tuple(self.of.columns),
            )
        if self.removed is not None and self.of.types.get(self.removed) != "boolean":
            booleans = ", ".join(name for name, kind in self.of.types.items() if kind == "boolean")
            raise DeclarationError(
                f"removed={self.removed!r} is no boolean column of control stream {self.of.name!r}; those are: "
                f"{booleans or 'none'}.",
                field="removed",
                value=self.removed,
                stream=self.of.name,
            )

    @property
    def fingerprint(self) -> str:
        """The facts that rules follow from, in words."""
        newest = "last to come" if self.version is None else f"greatest {self.version}"
        asked = "" if self.condition is None else f", conditions in {self.condition}"
        gone = "" if self.removed is None else f", without those that are {self.removed}"
        return f"{self.of.name} by {', '.join(self.by) or 'nothing'}, {newest}{asked}{gone}"

    @property
    def condition(self) -> str | None:
        """The column of the control stream that has conditions; None where there is none."""
        return next((rule.column for rule in self.of.rules if isinstance(rule, ConditionRule)), None)
