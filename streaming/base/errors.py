"""Every error the streaming room raises on purpose, and the base of all errors of Tidemark.

An error says what was given and what to do next, in a text for people. For programs it has a code, which stays the
same from release to release, and its facts as attributes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from typing import Any, ClassVar, TypedDict, Unpack

from streaming.base.frozen_mapping import FrozenMapping


class Facts(TypedDict, total=False):
    """The facts that any error may have, by the names under which it has them as attributes."""

    pipeline: str | None
    stream: str | None
    operator: str | None
    delivery: str | None
    receiver: str | None
    report: str | None
    savepoint: str | None
    table: str
    """The address of the table, in the lake or in a target."""
    column: str | None
    batch: int
    field: str
    """The field, argument, option or variable that has a wrong value."""
    value: object
    """The wrong value, as it was given."""
    choices: tuple[str, ...]
    """The values that would have been right."""
    address: str
    """The place of what is outside: a target, a source, a store, a registry."""
    retry_after: float | None
    """The seconds for which what is outside asks to be left alone."""


class TidemarkError(Exception):
    """Base of all errors that Tidemark raises on purpose.

    Its text is `says` and, after it, `next_step`: what to do about it. A fact that an error does not have is None.
    """

    code: ClassVar[str] = "tidemark"

    next_step: str = ""
    pipeline: str | None = None
    stream: str | None = None
    operator: str | None = None
    delivery: str | None = None
    receiver: str | None = None
    report: str | None = None
    savepoint: str | None = None
    table: str | None = None
    column: str | None = None
    batch: int | None = None
    field: str | None = None
    value: object = None
    choices: tuple[str, ...] | None = None
    address: str | None = None
    retry_after: float | None = None

    def __init__(self, says: str, next_step: str = "", **facts: Unpack[Facts]) -> None:
        ends = "" if says.endswith(".") else "." if next_step[:1].isupper() else ";"
        super().__init__(f"{says}{ends} {next_step}" if next_step else says)
        self.next_step = next_step
        vars(self).update(facts)

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that this error has, by name."""
        own = vars(self).items()
        return {name: fact for name, fact in own if fact is not None and name != "next_step" and name[0] != "_"}

    def to_json(self) -> dict[str, Any]:
        """The error in a document: facts that JSON has no value for are texts."""
        facts = json.loads(json.dumps(self.facts, default=str, skipkeys=True))
        return {"code": self.code, "text": str(self), "next_step": self.next_step, "facts": facts}

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), self.args), vars(self)


def _remade(kind: type[TidemarkError], args: tuple[Any, ...]) -> TidemarkError:
    """An error as it was before it was pickled or copied, whatever its class asks for when it is made."""
    error = kind.__new__(kind, *args)
    error.args = args
    return error


class StreamingError(TidemarkError):
    """Base of all errors of the streaming room."""

    code = "streaming"


class DeclarationError(StreamingError):
    """A stream, view or pipeline was declared with something that cannot work."""

    code = "declaration"


class WrongType(DeclarationError):
    """A `value` has another type than its `field` asks for."""

    code = "declaration.type"


class UnknownChoice(DeclarationError):
    """A `value` of a `field` is none of its `choices`."""

    code = "declaration.choice"


class UnknownColumn(DeclarationError):
    """A `column` is read that is not there; `choices` are those there are."""

    code = "declaration.column"


class BadName(DeclarationError):
    """A `value` cannot be a name, or is a name that is taken."""

    code = "declaration.name"


class ContractError(DeclarationError):
    """A data contract cannot be read, followed or written."""

    code = "declaration.contract"


class BadInterval(DeclarationError):
    """A `value` is no length of time that can be meant."""

    code = "declaration.interval"


class BadExpression(DeclarationError):
    """A `value` is not the SQL that its `field` asks for."""

    code = "declaration.sql"


class BadQuery(DeclarationError):
    """An SQL query, of which `value` is the part in question, cannot be kept right by its keys, for a `reason`.

    `reason` is one word, such as `limit`, which stays the same from release to release.
    """

    code = "declaration.query"

    reason: str = ""

    def __init__(self, says: str, next_step: str = "", *, reason: str, **facts: Unpack[Facts]) -> None:
        super().__init__(says, next_step, **facts)
        self.reason = reason


class SettingsError(StreamingError):
    """A setting, environment variable or conf file has an unusable value."""

    code = "settings"


class FormatError(StreamingError):
    """A `table` on disk is of the format `value`, and the newest that this release knows is `known`."""

    code = "lake.format"

    known: int = 0

    def __init__(self, says: str, next_step: str = "", *, known: int = 0, **facts: Unpack[Facts]) -> None:
        super().__init__(says, next_step, **facts)
        self.known = known


class MissingExtra(StreamingError):
    """Something is declared or typed that needs a package of an extra that is not installed."""

    code = "install.extra"


class JavaError(StreamingError):
    """Java is missing, or one on which Spark does not start."""

    code = "install.java"


class JarError(StreamingError):
    """A jar that the Spark session needs could not be had."""

    code = "install.jar"


class FeedError(StreamingError):
    """A feed was asked for something its data does not have."""

    code = "feed"


class SourceError(StreamingError):
    """The source of a stream is missing or changed under its reader."""

    code = "source"


class ReceiverError(StreamingError):
    """The source of a receiver is away, or gives what cannot be taken; it is tried again."""

    code = "receiver"


class AccessError(StreamingError):
    """An endpoint cannot be protected as it is declared: a variable is not set, or a file is no certificate or key."""

    code = "access"


class LogError(StreamingError):
    """An event log is missing, or does not fit the checkpoint or declaration at hand."""

    code = "log"


class RuleViolation(LogError):
    """Rows of a `batch` break `rules` that stop their `stream`; nothing of the batch was appended.

    `rules`: by the name of each, how many rows break it. `rows`: the first of them, each with the name of the `rule`,
    its `_origin`, and the values of the columns that the rule reads.
    """

    code = "log.rule"

    rules: Mapping[str, int] = FrozenMapping({})
    rows: tuple[Mapping[str, Any], ...] = ()

    def __init__(
        self,
        says: str,
        next_step: str = "",
        *,
        rules: Mapping[str, int],
        rows: tuple[Mapping[str, Any], ...],
        **facts: Unpack[Facts],
    ) -> None:
        super().__init__(says, next_step, **facts)
        self.rules = FrozenMapping(rules)
        self.rows = tuple(map(FrozenMapping, rows))


class SaltError(LogError):
    """A variable has another salt than the one by which values of a `stream` were hashed; its name is the `field`."""

    code = "log.salt"


class CheckpointError(LogError):
    """A checkpoint and its table do not belong together, so going on would lose or repeat rows."""

    code = "log.checkpoint"


class LeaseError(StreamingError):
    """Another process holds the checkpoints of this pipeline."""

    code = "lease"


class StoreError(StreamingError, OSError):
    """The object store on which the lake lies is away, or refuses; nothing was changed."""

    code = "store"


class FencedError(StreamingError):
    """Another process has gone on meanwhile from where this one was, so what this one has must not be written."""

    code = "fenced"


class RewrittenError(StreamingError):
    """Files of a table were rewritten, as compaction does, while a step was about to replace them; it is done again."""

    code = "rewritten"


class SupervisorError(StreamingError):
    """A stream was asked for something that the state it is in does not allow."""

    code = "supervisor"


class OperatorError(StreamingError):
    """An operator was asked for something that it does not hold, or that cannot be done with it."""

    code = "operator"


class NotBuiltYet(OperatorError):
    """A gate or a report reads tables that are not there yet, as nothing has run; the next step says what to run."""

    code = "operator.not-built"


class NoVersionError(OperatorError):
    """The tables of an operator have no version as of the batch that was asked for."""

    code = "operator.no-version"


class SinkError(StreamingError):
    """A target refused a batch as a whole, or is away; the same batch is delivered again."""

    code = "sink"


class ProgressError(StreamingError):
    """A target and its delivery do not agree on what was delivered, so going on would lose or repeat rows."""

    code = "delivery.progress"


class RedeliveryError(StreamingError):
    """A delivery cannot be repeated, or let go on, as was asked."""

    code = "delivery.again"


class QueryError(StreamingError):
    """A question about the latest values cannot be answered."""

    code = "latest"


class NotThere(QueryError):
    """The pipeline, table or key that was asked for is not there, or there is nothing of it yet."""

    code = "latest.not-there"


class ReadError(StreamingError):
    """Rows of the lake were asked for that are not there, or in a way in which they cannot be read."""

    code = "read"


class DimensionError(StreamingError, LookupError):
    """A table cannot be looked up in: it, or the version asked for, is gone, or does not fit what is looked up by."""

    code = "dimension"


class CatalogError(StreamingError):
    """A catalog of other engines is away, refuses, or has a table of somebody else's in the way."""

    code = "catalog"


class ChangedDeclaration(OperatorError):
    """A declaration would change what the tables hold that another declaration made."""

    code = "operator.changed"


class DeliveryPaused(ChangedDeclaration):
    """A delivery of a lake that was made of a savepoint, which delivers nothing until somebody says what is meant."""

    code = "delivery.paused"


class CorrectionsFailed(OperatorError):
    """Days of an operator could not be corrected, while all others that were asked for are.

    `failed`: why, by day; `corrected`: the corrected results of the others, by day.
    """

    code = "operator.corrections"

    failed: Mapping[date, Exception] = FrozenMapping({})
    corrected: Mapping[date, int] = FrozenMapping({})

    def __init__(
        self,
        says: str,
        next_step: str = "",
        *,
        failed: Mapping[date, Exception],
        corrected: Mapping[date, int],
        **facts: Unpack[Facts],
    ) -> None:
        super().__init__(says, next_step, **facts)
        self.failed = FrozenMapping(failed)
        self.corrected = FrozenMapping(corrected)


class FunctionError(StreamingError):
    """A user's function raised, or did with its key what cannot be done."""

    code = "function"


class SavepointError(StreamingError):
    """A savepoint cannot be taken, is not there, or cannot be restored where it was asked for."""

    code = "savepoint"


class ErasureError(StreamingError):
    """Data that somebody asked to be erased cannot be erased, or is not gone yet."""

    code = "erasure"


class RetractionError(StreamingError):
    """Rows cannot be taken back, or put back; nothing was written."""

    code = "retraction"


class QueryFailed(StreamingError):
    """A streaming query ended with an error; the text names the query and the cause."""

    code = "stream.failed"
