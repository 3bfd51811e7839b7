"""Cuts: which revisions of operators, and how much of the streams, a step of an SQL view reads together.

A view may read a stream and, by another way, what an operator has made of the same stream. Both are taken through the
same batch then, so that no result is of two moments. That holds for operators which are current with their streams, as
other SQL views and histories are; one that waits for a clock is behind by nature, and is read as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streaming.changes import ChangePosition, revision_of
from streaming.declare import CHANGES, CURRENT, Operator, View
from streaming.lake import Lake
from streaming.operators import CUT, FORGOTTEN, Progress, first_number
from streaming.tables import delta, newest_commits

CUT_OF = "cut.{}"
"""The number of each stream that a view reads only by way of operators: the batch that these have followed."""

_MOST_LOOKED_AT = 32
"""Commits of a table that are looked at for a revision that goes with those of others."""
_MOST_TRIED = 10_000


@dataclass(frozen=True)
class Revision:
    """A revision of what is current of an operator, and the batch of each stream through which it goes, by name."""

    number: int
    cut: Mapping[str, int]


@dataclass(frozen=True)
class Cut:
    """The `revisions` of operators, by name, that go together, and the batches of streams that go with them."""

    revisions: Mapping[str, int]
    through: Mapping[str, int]


def agreed(
    options: Mapping[str, Sequence[Revision]], through: Mapping[str, int], followed: Mapping[str, int]
) -> Cut | None:
    """The first combination of revisions, one of each operator, all of which are through the same batch of a stream.

    `options` are the revisions of each operator, newest first; `through` are batches of streams that are followed, and
    `followed` revisions, below which nothing goes. None where no revisions go together.
    """
    newer = [[each for each in of if each.number >= followed.get(name, -1)] for name, of in options.items()]
    for chosen in islice(product(*newer), _MOST_TRIED):
        cut = dict[str, int]()
        fits = all(
            cut.setdefault(stream, batch) == batch and batch >= through.get(stream, batch)
            for revision in chosen
            for stream, batch in revision.cut.items()
        )
        if fits:
            return Cut({name: each.number for name, each in zip(options, chosen, strict=True)}, cut)
    return None


class Cuts:
    """The cuts of one view by which it may step."""

    def __init__(self, lake: Lake, view: View) -> None:
        self._lake = lake
        self._operators = [operator for operator in view.reads_current if operator.current_with]
        ways = Counter(stream.name for stream in view.follows)
        ways.update(stream.name for operator in self._operators for stream in operator.current_with)
        self._is_diamond = any(number > 1 for number in ways.values())
        self._alone = {stream.name for operator in self._operators for stream in operator.current_with}
        self._alone -= {stream.name for stream in view.follows}

    def newest(self, through: Mapping[str, int], followed: Mapping[str, int]) -> Cut | None:
        """The newest cut that goes on from batches and revisions that are followed; None where there is none yet."""
        for most in (1, _MOST_LOOKED_AT):
            options = {each.name: [*islice(self._published(each), most)] for each in self._operators}
            if (cut := agreed(options, through, followed)) is not None:
                return cut
        # What is not published yet, or not by this release, has no cut.
        return None if self._is_diamond else Cut({}, {})

    def numbers(self, cut: Cut) -> dict[str, int]:
        """The numbers by which a table of the view keeps a cut, besides those of the streams that it follows."""
        return {CUT_OF.format(stream): cut.through.get(stream, FORGOTTEN) for stream in sorted(self._alone)}

    def says(self, cut: Cut) -> dict[str, object]:
        """The part of the metadata of a commit that tells the same; nothing for a view of streams alone."""
        through = {stream: cut.through[stream] for stream in sorted(self._alone) if stream in cut.through}
        return {CUT: through} if through else {}

    def _published(self, operator: Operator) -> Iterator[Revision]:
        """The revisions of an operator that can be read, newest first; the newest of each batch that it is through."""
        changes, current = (delta.open_table(self._lake.table(operator, to)) for to in (CHANGES, CURRENT))
        if changes is None or current is None:
            return
        newest, told = revision_of(current), ChangePosition.of(changes)
        if told.revision == newest:
            yield from self._revision(operator, newest, told.first)
        readable = {newest, *(number for number, _ in _said(current, "revision"))}
        for number, first in _said(changes, "revision", "first"):
            if number in readable:
                yield from self._revision(operator, number, first)

    def _revision(self, operator: Operator, number: int, version: int) -> Iterator[Revision]:
        try:
            table = delta.open_table(self._lake.table(operator), version)
        except DeltaError:
            return
        if table is not None:
            yield Revision(number, cut_of(operator, table))


def cut_of(operator: Operator, table: DeltaTable) -> dict[str, int]:
    """The batch of each stream through which an open table of an operator goes, as far as it says so."""
    through = Progress.of(operator, table).through
    noted = {each.name: first_number(table, CUT_OF.format(each.name)) for each in operator.current_with}
    known = {name: number for name, number in noted.items() if number not in (None, FORGOTTEN)}
    return {**known, **{name: batch for name, batch in through.items() if name in noted}}


def _said(table: DeltaTable, *names: str) -> Iterator[tuple[int, int]]:
    """The first and the last of some numbers that the newest commits of an open table say, newest first."""
    for commit in islice(newest_commits(table), _MOST_LOOKED_AT):
        says = commit["userMetadata"]
        if isinstance(says, dict) and all(isinstance(says.get(name), int) for name in names):
            yield says[names[0]], says[names[-1]]
