"""The declaration of a pipeline: one stream and the views that one process keeps."""

from __future__ import annotations

from dataclasses import dataclass, field

from streaming.base import DeclarationError, check_name, interval
from streaming.declare.limits import Limits
from streaming.declare.restarts import ExponentialBackoff, RestartStrategy
from streaming.declare.stream import Stream
from streaming.declare.windowed import Windowed

_TAKEN = ("log", "batches", "rejected", "late", "progress", "trend")


@dataclass(frozen=True)
class Pipeline:
    """A stream and its views, run together in one process.

    Where it runs continuously, a batch begins every `trigger` at the earliest. `restart` says what happens when its
    process dies, and `identical_failures` how often the same batch may fail in the same way. `stop_within` bounds the
    end of a running batch; `hangs_after` is how long a batch may take before its process is taken for hung. Beyond
    `limits` an alert is raised.

    Raises:
        DeclarationError: there is no view, a name is repeated or reserved, a view reads another stream, or an interval
            cannot be read.
    """

    stream: Stream
    views: tuple[Windowed, ...]
    owner: str = "team:data"
    trigger: str = "1 second"
    restart: RestartStrategy = field(default_factory=ExponentialBackoff)
    identical_failures: int = 3
    stop_within: str = "45 seconds"
    hangs_after: str = "10 minutes"
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for length in (self.trigger, self.stop_within, self.hangs_after):
            interval(length)
        if self.identical_failures < 1:
            raise DeclarationError(
                f"identical_failures={self.identical_failures!r} would never start {self.name!r}; use 1 or more."
            )
        names = [view.name for view in self.views]
        if not names:
            raise DeclarationError(f"pipeline {self.name!r} has no views; give it at least one.")
        for view in self.views:
            check_name("view", view.name)
            if names.count(view.name) > 1 or view.name in _TAKEN:
                raise DeclarationError(
                    f"view name {view.name!r} of pipeline {self.name!r} is taken; every view needs its own, and "
                    f"{', '.join(_TAKEN)} belong to the stream."
                )
            for suffix in ("_corrections", "_updates", "_open"):
                if view.name.removesuffix(suffix) in {*names} - {view.name}:
                    raise DeclarationError(
                        f"view name {view.name!r} of pipeline {self.name!r} is the place of the {suffix[1:]} of view "
                        f"{view.name.removesuffix(suffix)!r}; rename one of them."
                    )
            if view.of != self.stream:
                raise DeclarationError(
                    f"view {view.name!r} reads stream {view.of.name!r}, but the pipeline's is {self.name!r}."
                )

    @property
    def name(self) -> str:
        """A pipeline is named after its stream."""
        return self.stream.name

    @property
    def corrected(self) -> tuple[Windowed, ...]:
        """The views that have corrections."""
        return tuple(view for view in self.views if view.corrected)

    @property
    def updated(self) -> tuple[Windowed, ...]:
        """The views that the stream process itself updates."""
        return tuple(view for view in self.views if view.late == "update")

    def view(self, name: str | None = None) -> Windowed:
        """The view of that name; without a name, the first one.

        Raises:
            DeclarationError: there is no such view.
        """
        for view in self.views:
            if name in (None, view.name):
                return view
        raise DeclarationError(
            f"pipeline {self.name!r} has no view {name!r}; its views: {', '.join(v.name for v in self.views)}."
        )
