"""Every error the streaming room raises on purpose; all of them say what was given and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import Any

_NONE: Mapping[date, Any] = MappingProxyType({})


class StreamingError(Exception):
    """Base of all errors of the streaming room."""


class DeclarationError(StreamingError):
    """A stream, view or pipeline was declared with something that cannot work."""


class SettingsError(StreamingError):
    """A setting, environment variable or conf file has an unusable value."""


class FormatError(StreamingError):
    """A `table` on disk is of the format `found`, and the newest that this release knows is `known`."""

    def __init__(self, text: str, table: str = "", found: str = "", known: int = 0) -> None:
        super().__init__(text)
        self.table = table
        self.found = found
        self.known = known


class MissingExtra(StreamingError):
    """Something is declared or typed that needs a package of an extra that is not installed."""


class JavaError(StreamingError):
    """Java is missing, or one on which Spark does not start."""


class JarError(StreamingError):
    """A jar that the Spark session needs could not be had."""


class FeedError(StreamingError):
    """A feed was asked for something its data does not have."""


class SourceError(StreamingError):
    """The source of a stream is missing or changed under its reader."""


class ReceiverError(StreamingError):
    """The source of a receiver is away, or gives what cannot be taken; it is tried again.

    `retry_after`: the seconds that it asks to be left alone for, where it says so.
    """

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class AccessError(StreamingError):
    """An endpoint cannot be protected as it is declared: a variable is not set, or a file is no certificate or key."""


class LogError(StreamingError):
    """An event log is missing, or does not fit the checkpoint or declaration at hand."""


class CheckpointError(LogError):
    """A checkpoint and its table do not belong together, so going on would lose or repeat rows."""


class LeaseError(StreamingError):
    """Another process holds the checkpoints of this pipeline."""


class StoreError(StreamingError, OSError):
    """The object store on which the lake lies is away, or refuses; nothing was changed."""


class FencedError(LogError):
    """Another process has appended to the log meanwhile, so what this one stamped must not be appended."""


class RewrittenError(StreamingError):
    """Files of a table were rewritten, as compaction does, while a step was about to replace them; it is done again."""


class SupervisorError(StreamingError):
    """A stream was asked for something that the state it is in does not allow."""


class ViewError(StreamingError):
    """A view has not been built yet, or was asked for something it does not hold."""


class NoVersionError(ViewError):
    """The tables of a view have no version as of the batch that was asked for."""


class SinkError(StreamingError):
    """A target refused a batch as a whole, or is away; the same batch is delivered again.

    `retry_after`: the seconds that the target asks to be left alone for, where it says so.
    """

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class ProgressError(StreamingError):
    """A target and its delivery do not agree on what was delivered, so going on would lose or repeat rows."""


class RedeliveryError(StreamingError):
    """A delivery was asked for days that it cannot deliver again."""


class QueryError(StreamingError):
    """A question about the latest values cannot be answered."""


class NotThere(QueryError):
    """The pipeline, table or key that was asked for is not there, or there is nothing of it yet."""


class ChangedDeclaration(ViewError):
    """A declaration would change what the tables hold that another declaration made."""


class DeliveryPaused(ChangedDeclaration):
    """A delivery of a lake that was made of a savepoint, which delivers nothing until somebody says what is meant."""


class CorrectionsFailed(ViewError):
    """Days of an operator could not be corrected, while all others that were asked for are.

    `failed`: why, by day; `corrected`: the corrected results of the others, by day.
    """

    def __init__(
        self, text: str, failed: Mapping[date, Exception] = _NONE, corrected: Mapping[date, int] = _NONE
    ) -> None:
        super().__init__(text)
        self.failed = failed
        self.corrected = corrected


class FunctionError(StreamingError):
    """A user's function raised, or did with its key what cannot be done."""


class SavepointError(StreamingError):
    """A savepoint cannot be taken, is not there, or cannot be restored where it was asked for."""


class ErasureError(StreamingError):
    """Data that somebody asked to be erased cannot be erased, or is not gone yet."""


class QueryFailed(StreamingError):
    """A streaming query ended with an error; the text names the query and the cause."""
