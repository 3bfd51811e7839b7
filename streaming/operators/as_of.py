"""Tables of an operator as of a batch of the logs that it reads."""

from __future__ import annotations

from collections.abc import Mapping

from deltalake import DeltaTable

from streaming.base import ViewError
from streaming.declare import Operator
from streaming.lake import Lake
from streaming.log import Batch
from streaming.tables import newest_commits

_NAMED = 5


def check_followed(operator: Operator, through: int, newest: Batch | None) -> None:
    """Refuse to read an operator that is `through` a batch as of a newer one, the `newest`.

    Raises:
        ViewError: with the command that follows.
    """
    if newest is not None and newest.number > through:
        raise ViewError(
            f"{operator.kind_name} {operator.name!r} is at batch {through} of its log, so it cannot be read as of "
            f"batch {newest.number} yet; run `tidemark run {operator.folder}` first, or choose an older batch."
        )


def version_read(lake: Lake, operator: Operator, table: DeltaTable) -> int:
    """The version of an open table of the operator that a reader of the lake sees: the newest, or that as of its cut.

    Raises:
        ViewError: there is none as of the cut.
    """
    return table.version() if lake.cut is None else version_through(lake, operator, table)


def version_through(lake: Lake, operator: Operator, table: DeltaTable) -> int:
    """The version of an open table of the operator that follows its logs up to the batches that the lake is read as of.

    A step may follow several batches, so not every batch has a version.

    Raises:
        ViewError: there is none; with the nearest that there are.
    """
    wanted = {stream.name: lake.batch_read(stream) or 0 for stream in operator.follows}
    there: list[dict[str, int]] = []
    for commit in newest_commits(table):
        through = _through(operator, commit["userMetadata"])
        if through == wanted:
            return int(commit["version"])
        if through is not None:
            there.append(through)
    nearest = sorted(there, key=lambda each: sum(abs(each[name] - number) for name, number in wanted.items()))
    named = ", ".join(map(_named, nearest[:_NAMED])) or "none"
    raise ViewError(
        f"operator {operator.name!r} has no version as of {_named(wanted)}: it has stepped over it, or the version was "
        f"cleaned away. It has those of: {named}. Choose one of them; `tidemark restore --to` and `tidemark run` show "
        "any batch that a savepoint lies before."
    )


def _through(operator: Operator, said: object) -> dict[str, int] | None:
    """How far a commit of the operator says that the table is, by stream; None where it does not."""
    through = said.get("through") if isinstance(said, Mapping) else None
    names = [stream.name for stream in operator.follows]
    if isinstance(through, int) and len(names) == 1:
        return {names[0]: through}
    if isinstance(through, Mapping) and set(through) == {*names}:
        return {name: int(number) for name, number in through.items()}
    return None


def _named(through: Mapping[str, int]) -> str:
    return " and ".join(f"batch {number} of {name}" for name, number in through.items())
