"""Open Delta tables altered: commits that are tried again where another one came first, and properties."""

from __future__ import annotations

from collections.abc import Mapping

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

_ATTEMPTS = 8


def attempts(table: DeltaTable) -> Retrying:
    """The attempts of a commit: after one that lost to another commit, the open table is updated before the next."""
    return Retrying(
        retry=retry_if_exception_type(CommitFailedError),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(0.05, max=2),
        after=lambda _: table.update_incremental(),
        reraise=True,
    )


def set_properties(table: DeltaTable, properties: Mapping[str, str], *, needed: bool = False) -> bool:
    """Give an open table those `properties` that it does not have yet; tells if it has all of them then.

    A table with reader features, such as one of instants without a time zone, keeps what it has unless they are
    `needed`: delta-rs adds features with them that readers of the table may not know.
    """
    for attempt in attempts(table):
        with attempt:
            lacking = dict(properties.items() - table.metadata().configuration.items())
            if lacking and not needed and table.protocol().min_reader_version >= 3:
                return False
            if lacking:
                table.alter.set_table_properties(lacking, raise_if_not_exists=False)
    return True
