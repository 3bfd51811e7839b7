"""Rows of a dlt resource that is run again and again, and its state, which lands in one step with them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, ClassVar

from streaming.base import DeclarationError, check_type, interval, needs
from streaming.sources.receivers.connector import Connector, LandingGuarantee, Received, Reception
from streaming.sources.receivers.web import pause


@dataclass(frozen=True)
class DltPoll(Connector):
    """Runs the dlt resource that `resource` makes, every `every`, and takes its rows: what any source of dlt gives.

    `resource` is a function of a module, without arguments: it returns a `DltResource`, such as
    `github_issues("acme/shop")`, or one of a source's, `source.resources["issues"]`. Where its data comes from, with
    which secrets and where it goes on, is dlt's: `dlt.sources.incremental`, `dlt.current.resource_state()`, its
    configuration. Each run begins with the state that the run before ended with.

    Exactly once: rows of a run are written as they come and land once it is at its end, in one step with its state. A
    run that fails, or dies, lands nothing and is made again. So let a first run of years be cut by `add_limit`, of a
    resource whose rows ascend (`row_order="asc"`), where it shall not be made again from its beginning. A resource
    without a state gives all its rows in each run, and all of them land; so do those within the `lag` of an
    incremental. One with an `end_value` is refused, as dlt keeps no state of it.

    A run lands as one file, whatever its size. It goes on in a thread, so that the receiver stops also while the
    resource waits for its API; what was not at its end then comes with the run that is made again. Threads of dlt's
    own pool, of a resource with `parallelized=True` or of functions with `@dlt.defer`, are waited for by Python when
    the process ends: it then ends only once their calls return, so give these a timeout.

    A row is an object in JSON; what JSON has no word for becomes text: instants, dates and times in ISO 8601, bytes as
    base64, UUIDs. Decimals are numbers. Rows in tables of Arrow or pandas are taken one by one.

    Raises:
        DeclarationError: the function cannot be found by its name again, or the interval cannot be.
        MissingExtra: dlt is not installed.
    """

    resource: Callable[[], Any]
    every: str = "10 minutes"

    guarantee: ClassVar[LandingGuarantee] = "exactly once"

    def __post_init__(self) -> None:
        needs("dlt", "rows of a resource of dlt")
        interval(self.every)
        name = getattr(self.resource, "__qualname__", None)
        check_type("resource of DltPoll", self.resource, Callable, "a function that returns a resource of dlt")  # type: ignore[arg-type]
        if not isinstance(name, str) or "<" in name:
            raise DeclarationError(
                f"resource={self.resource!r} of DltPoll is no function of a module",
                "write one with a name, such as `def issues(): return github_issues('acme/shop')`, and give it.",
                field="resource",
                value=self.resource,
            )

    @property
    def address(self) -> str:
        """The function, with its module."""
        return f"dlt resource {self.resource.__module__}.{self.resource.__qualname__}"

    def receive(self, reception: Reception) -> Generator[Received, None, None]:
        """The rows of each run, and at its end the state as the cursor.

        Raises:
            ReceiverError: the function makes no resource, or one with an end, or the run fails.
        """
        # Only who receives from dlt loads it.
        from streaming.sources.receivers.dlt_runs import run_aside

        yield Received(stands=False)
        cursor = reception.cursor
        while True:
            cursor = yield from run_aside(self.resource, self.address, cursor)
            yield from pause(interval(self.every).total_seconds())
