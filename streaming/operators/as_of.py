"""Tables of an operator as of a batch of the logs that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Generic, TypeVar

from deltalake import DeltaTable

from streaming.base import NoVersionError, OperatorError
from streaming.declare import CURRENT, Operator
from streaming.lake import Lake
from streaming.log import Batch
from streaming.operators.progress import generation_of, versions_now
from streaming.tables import delta, newest_commits, storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CUT = "cut"
"""The batches, in the metadata of a step's commit, of streams that it has followed only by way of other operators."""
_NAMED = 5
Of = TypeVar("Of", bound=Operator)


def check_followed(operator: Operator, through: int, newest: Batch | None) -> None:
    """Refuse to read an operator that is `through` a batch as of a newer one, the `newest`.

    Raises:
        OperatorError: with the command that follows.
    """
    if newest is not None and newest.number > through:
        raise OperatorError(
            f"{operator.kind_name} {operator.name!r} is at batch {through} of its log, so it cannot be read as of "
            f"batch {newest.number} yet; run `tidemark run {operator.folder}` first, or choose an older batch."
        )


def version_read(lake: Lake, operator: Operator, table: DeltaTable) -> int:
    """The version of an open table of the operator that a reader of the lake sees: the newest, or that as of its cut.

    Raises:
        NoVersionError: there is none as of the cut.
    """
    return table.version() if lake.cut is None else version_through(lake, operator, table)


def versions_read(lake: Lake, operator: Operator, *others: str) -> dict[str, int]:
    """The versions of its tables, and of those with the suffixes `others`, that readers of the lake see, by suffix.

    `delta.BEFORE` for a table that is not there. As of a cut there are no corrections: they are computed for it.

    Raises:
        NoVersionError: a table has none as of the cut.
    """
    if lake.cut is None:
        return versions_now(lake, operator, *others)
    streamed = [spec.suffix for spec in operator.tables if spec.written_by == "stream"]
    opened = {suffix: delta.open_table(lake.table(operator, suffix)) for suffix in streamed}
    versions = {to: version_through(lake, operator, table) for to, table in opened.items() if table is not None}
    return {**dict.fromkeys((*(spec.suffix for spec in operator.tables), *others), delta.BEFORE), **versions}


def version_through(lake: Lake, operator: Operator, table: DeltaTable) -> int:
    """The version of an open table of the operator that follows its logs up to the batches that the lake is read as of.

    A step may follow several batches, so not every batch has a version, and one from before the tables were built anew
    is of another declaration.

    Raises:
        NoVersionError: there is none; with the nearest that there are.
    """
    clocked = [each for each in operator.reads_current if not each.current_with]
    if clocked:
        of = " and ".join(f"{each.kind_name} {each.name!r}" for each in clocked)
        raise NoVersionError(
            f"{operator.kind_name} {operator.name!r} has no version as of a batch: it reads what is current of {of}, "
            "which also changes when a correction runs, between two batches. Read it as it is now, or its table "
            f"{lake.table(operator, CURRENT)} at a version of Delta's."
        )
    wanted = {stream.name: lake.batch_read(stream) or 0 for stream in (*operator.follows, *operator.current_with)}
    there: list[dict[str, int]] = []
    for commit in newest_commits(table):
        through = _through(operator, commit["userMetadata"])
        if through == wanted:
            version = int(commit["version"])
            if _can_be_read(table, version):
                return version
            break
        if through is not None:
            there.append(through)
    nearest = sorted(there, key=lambda each: sum(abs(each[name] - number) for name, number in wanted.items()))
    named = ", ".join(map(_named, nearest[:_NAMED])) or "none"
    raise NoVersionError(
        f"operator {operator.name!r} has no version as of {_named(wanted)}: it has stepped over it, or the version was "
        f"cleaned away. It has those of: {named}. Choose one of them; or let it be computed from the log, as `tidemark "
        "show --as-of` does and, in Python, `with recomputed(spark, lake, operators) as there`."
    )


def _can_be_read(table: DeltaTable, version: int) -> bool:
    """True if a version is of the generation of an open table, and has its files."""
    if version == table.version():
        return True
    then = delta.open_table(table.table_uri, version)
    return then is not None and generation_of(then) == generation_of(table) and not storage.missing_files(then)


def _through(operator: Operator, metadata: object) -> dict[str, int] | None:
    """The progress of the table that a commit of the operator records, by stream; None where it records none."""
    if not isinstance(metadata, Mapping):
        return None
    through, names = metadata.get("through"), [stream.name for stream in operator.follows]
    told = {names[0]: through} if isinstance(through, int) and len(names) == 1 else through
    if not isinstance(told, Mapping) or set(told) != {*names}:
        return None
    beside = {stream.name for stream in operator.current_with} - {*names}
    cut = metadata.get(CUT, {})
    if not beside <= cut.keys():
        return None
    return {name: int(number) for name, number in (*told.items(), *((each, cut[each]) for each in beside))}


def _named(through: Mapping[str, int]) -> str:
    return " and ".join(f"batch {number} of {name}" for name, number in through.items())


@dataclass(frozen=True)
class PinnedTables(Generic[Of]):
    """The tables of an operator at versions of one moment, by suffix; `delta.BEFORE` for those not there."""

    operator: Of
    versions: Mapping[str, int]

    @classmethod
    def now(cls, lake: Lake, operator: Of, *others: str) -> PinnedTables[Of]:
        """As readers of the lake see it now.

        `others` are suffixes of tables that an earlier declaration of the operator may have made.
        """
        return cls(operator, versions_read(lake, operator, *others))

    def nothing_yet(self, lake: Lake, done: str) -> OperatorError:
        """The error of an operator whose tables are not there; `done` is what it does to rows, such as `joined`."""
        operator = self.operator
        return OperatorError(
            f"{operator.kind_name} {operator.name!r} has {done} nothing yet at {lake.table(operator)!r}; run "
            f"`tidemark run {operator.folder}` first."
        )


@dataclass(frozen=True)
class LogAtVersion:
    """An event log as an audit looks at it: the rows of one Delta `version`, and its `batches`, oldest first.

    `dropped`: the day before which it has no valid row any more; None where none was dropped.
    """

    version: int | None
    rows: DataFrame
    batches: Sequence[Batch]
    dropped: date | None = None
