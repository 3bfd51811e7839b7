"""The declaration of a pinned side input: rules that a control stream sets, or rows of a history as they were."""

from __future__ import annotations

from dataclasses import dataclass

from streaming.base import DeclarationError, settle
from streaming.declare.condition_rule import ConditionRule
from streaming.declare.history import History
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

    Of a `History` the rows are a dimension: by the key of its stream those that were valid at the time of the row, or
    for which the timer was set, as the history was known when the batch was read; of `kind=1` the newest. They have the
    columns of the history, and its stream is the one whose log is pinned. Rows wait until the history is that far.

    Raises:
        DeclarationError: an unknown column, a key whose equal values are not always the same, or a history with what
            only rules have.
    """

    of: Stream | History
    by: tuple[str, ...] = ()
    version: str | None = None
    removed: str | None = None

    def __post_init__(self) -> None:
        settle(self, "Pinned")
        if isinstance(self.of, History):
            self._check_history(self.of)
            return
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

    def _check_history(self, history: History) -> None:
        for name in ("by", "version", "removed"):
            value = getattr(self, name)
            if value and not (name == "by" and value == history.of.key):
                raise DeclarationError(
                    f"{name}={value!r} of Pinned is about rules, and {history.name!r} is a history, whose rows are by "
                    f"the key of their stream: {', '.join(history.of.key)}",
                    "leave it out.",
                    field=name,
                    value=value,
                    operator=history.name,
                )
        object.__setattr__(self, "by", history.of.key)

    @property
    def control(self) -> Stream:
        """The stream of which each batch of the data says how far it was."""
        return self.of.of if isinstance(self.of, History) else self.of

    @property
    def history(self) -> History | None:
        """The history whose rows are looked up; None for rules."""
        return self.of if isinstance(self.of, History) else None

    @property
    def fingerprint(self) -> str:
        """The facts that rules follow from, in words."""
        if isinstance(self.of, History):
            facts = ", ".join(f"{name} {value}" for name, value in self.of.whole_fingerprint.items())
            return f"history {self.of.name} of {facts}"
        newest = "last to come" if self.version is None else f"greatest {self.version}"
        asked = "" if self.condition is None else f", conditions in {self.condition}"
        gone = "" if self.removed is None else f", without those that are {self.removed}"
        return f"{self.of.name} by {', '.join(self.by) or 'nothing'}, {newest}{asked}{gone}"

    @property
    def condition(self) -> str | None:
        """The column of the control stream that has conditions; None where there is none."""
        return next((rule.column for rule in self.control.rules if isinstance(rule, ConditionRule)), None)
