"""The contract of a connector: brings rows from what cannot be read again, so that a receiver can land them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

IDLE = 0.5
"""Seconds after which a connector that has nothing says so."""
PORTION_ROWS, PORTION_BYTES = 1_000, 8 * 2**20
"""Rows, or bytes of them, from which on what has come is handed on, though more is there."""

LandingGuarantee = Literal["at most once", "at least once", "exactly once"]
"""The number of times that a row comes into the landing folder, whatever dies meanwhile."""


def _none() -> Sequence[str]:
    return ()


@dataclass(frozen=True)
class Received:
    """Rows that came together, in order; none where nothing came for a while.

    A row is one payload, without a line break. `cursor`: where the source goes on behind them, a JSON value that is
    not null; it is landed in one step with the rows, and with those before them that came without one. `refused`: how
    many others were too large to be taken, were cut off, or came from somebody whom nothing is taken from. `landed` is
    called once these rows and all before them are durable under their final name, for a source that waits for a word.
    `behind`: bytes that the source keeps for this connector, as they are not landed; None where it does not tell.
    `waits`: the source gives no more before all of these are landed, so they land at once. `stands`: false where the
    source has not answered yet, so that nothing tells whether it is there. `lost`: what the source has lost of the rows
    that it was to keep, in words; it is told in the log, the status and an alert. `comes_again`: false where the
    source does not give these rows again, even if it gives others again; they land when a connection is lost.
    """

    rows: Sequence[bytes] = ()
    cursor: Any = None
    refused: int = 0
    landed: Callable[[], None] | None = None
    behind: int | None = None
    waits: bool = False
    stands: bool = True
    lost: str = ""
    comes_again: bool = True


@dataclass(frozen=True)
class Reception:
    """The state that a connector begins with: the `cursor` that it gave last, None at first, and what it is to ask for.

    `requests` gives the messages, a hundred at most, that are to be sent on this connection and were not sent on it
    yet: all that there ever were, one portion after another, then new ones as they come up.
    """

    cursor: Any = None
    requests: Callable[[], Sequence[str]] = _none


class Connector(ABC):
    """Where rows come from that land first. A frozen value, as every declaration; connections live in `receive` alone.

    What it cannot say again is lost if it is lost before it was landed, so the guarantee is named:

    - *at most once*: nobody can ask for a row again. Rows go to a hidden file as they come; whole rows that a process
      left there when it died are landed by the next one.
    - *at least once*: the source keeps a row until it hears that it is landed (`Received.landed`), and gives it again
      otherwise. What a process left behind when it died is thrown away. A cursor is for what the next connection is to
      know, and has no rows behind it.
    - *exactly once*: the source goes on at a cursor, which is landed in one step with the rows (`Received.cursor`). It
      may wait for a word, too, to forget what is before the cursor. Rows that come without a cursor wait for the next
      one, however many and old they are, and come again where it does not come.
    """

    guarantee: ClassVar[LandingGuarantee]

    takes_requests: ClassVar[bool] = False
    """True if the connector sends what `Reception.requests` gives."""

    @property
    @abstractmethod
    def address(self) -> str:
        """Where the rows come from, for people and error texts; without secrets."""

    @property
    def cursor_of(self) -> str:
        """The source that a cursor is of, as the cursor of another one would pass over rows: the address.

        A connector whose address leaves a part out adds it, or a digest of it.
        """
        return self.address

    @abstractmethod
    def receive(self, reception: Reception) -> Generator[Received, None, None]:
        """Connect, and give what comes, at least every `IDLE` seconds something, if only `Received()`.

        The first one says that the connection stands, but for `Received(stands=False)`, which says that the source has
        still to answer: one that then fails was away all the while. While a row is being written nothing more is asked
        for, so let the source wait, and keep no more than a portion in memory. To end, the generator is closed where it
        yielded: give back connections by `with` or `finally`.

        Raises:
            ReceiverError: the source is away; it is connected to again, later each time.
        """
