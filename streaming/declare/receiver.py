"""The declaration of a receiver: what cannot be read again, and the stream into whose landing folder it goes."""

from __future__ import annotations

from dataclasses import dataclass

from streaming.base import DeclarationError, check_name, check_names, interval, settle
from streaming.declare.operator import Operator
from streaming.declare.stream import Stream
from streaming.sources import Connector, Files, landed_name, matcher

SUBSCRIPTIONS = "subscriptions"
"""The suffix that the name of the table of subscriptions adds to its receiver's."""

_VALUE = "{value}"


@dataclass(frozen=True)
class Subscriptions:
    """The values that a receiver asks its source for: each of `column` in a stream's valid rows, or in a view, once.

    A value is asked for by sending `message`, in which `{value}` stands for the value in JSON; of all values again on
    each new connection. The table `<receiver>_subscriptions` has each value, under the name of the column, and
    `first_seen`, the instant at which the receiver came upon it.

    Raises:
        DeclarationError: there is no such column, or the message has no place for a value.
    """

    of: Stream | Operator
    column: str
    message: str = '{"subscribe": {value}}'

    def __post_init__(self) -> None:
        settle(self, "Subscriptions")
        # Of an operator the columns are told as far as its declaration knows them.
        columns = self.of.columns if isinstance(self.of, Stream) else tuple(spec.name for spec in self.of.columns_of())
        if columns:
            check_names("column of Subscriptions", f"`{self.column}`", columns)
        if _VALUE not in self.message:
            raise DeclarationError(
                f"message={self.message!r} of Subscriptions has no {_VALUE}, where the value is to stand",
                'write one, such as {"subscribe": {value}}.',
                field="message",
                value=self.message,
            )

    def message_for(self, value: str) -> str:
        """The message that asks for a value, which is given in JSON."""
        return self.message.replace(_VALUE, value)


@dataclass(frozen=True)
class Receiver:
    """Receives rows by `connector` and lands them, as whole files, in the folder that the stream `into` reads.

    A file is landed once its first row has waited for `every`, or it has `rows_per_file` rows or `bytes_per_file`
    bytes. Every path that was taken is remembered by the stream, so let files be of minutes where it is to run for
    years. The guarantee up to landing is the connector's; from there on it is that of `Files`.

    `subscriptions`: what the source is to be asked for, where it gives nothing else.

    It runs in a process of its own, under the supervisor of the pipeline (`tidemark up`) or by itself
    (`tidemark receive`), never twice at a time.

    Raises:
        DeclarationError: the stream reads no files, or the connector takes no requests.
    """

    name: str
    connector: Connector
    into: Stream
    subscriptions: Subscriptions | None = None
    every: str = "1 minute"
    rows_per_file: int = 100_000
    bytes_per_file: int = 64_000_000
    description: str = ""

    def __post_init__(self) -> None:
        check_name("receiver", self.name)
        of = f"of receiver {self.name!r}"
        settle(self, f"receiver {self.name!r}")
        if not isinstance(self.into.source, Files):
            raise DeclarationError(
                f"stream {self.into.name!r} {of} reads {type(self.into.source).__name__}, but what is received lands "
                f"in files",
                f"give the stream source=Files('landing/{self.into.name}').",
                stream=self.into.name,
            )
        self._check_read(self.into.source, of)
        if self.subscriptions is not None and not self.connector.takes_requests:
            raise DeclarationError(
                f"subscriptions {of}: {type(self.connector).__name__} sends no requests",
                "leave them out, or use a connector that does, such as Websocket.",
            )
        interval(self.every)
        for name in ("rows_per_file", "bytes_per_file"):
            if getattr(self, name) < 1:
                raise DeclarationError(
                    f"{name}={getattr(self, name)!r} {of} lands nothing",
                    "use 1 or more.",
                    field=name,
                    value=getattr(self, name),
                )

    def _check_read(self, files: Files, of: str) -> None:
        """Refuse files that would not be read line by line, each of them once.

        Raises:
            DeclarationError: with the setting.
        """
        for name, meant in (
            ("payloads", "each line that is received is a row of its own"),
            ("identity", "files with the same rows are not the same file"),
        ):
            value, usual = getattr(files, name), getattr(Files(files.path), name)
            if value != usual:
                raise DeclarationError(
                    f"stream {self.into.name!r} {of} reads Files({name}={value!r}), but {meant}",
                    f"leave {name} out, which is {usual!r} then; land other files in a folder of their own.",
                    stream=self.into.name,
                )
        example = landed_name(self.name, 0)
        if not matcher(files.names)(example):
            raise DeclarationError(
                f"stream {self.into.name!r} {of} reads Files(names={files.names!r}), and what is received lands under "
                f"names such as {example!r}",
                "leave names out, or write a pattern that has them.",
                stream=self.into.name,
            )

    @property
    def folder(self) -> str:
        """The folder of the lake in which its table lies: that of its stream."""
        return self.into.name

    @property
    def reserved_suffixes(self) -> tuple[str, ...]:
        """The suffixes that the names of its tables add to its own."""
        return () if self.subscriptions is None else (SUBSCRIPTIONS,)

    def table_name(self, suffix: str) -> str:
        """The name of one of its tables."""
        return f"{self.name}_{suffix}"
