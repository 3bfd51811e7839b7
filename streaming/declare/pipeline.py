"""The declaration of a pipeline: the streams, operators and deliveries that one process runs, and its receivers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streaming.base import EPOCH, DeclarationError, check_name, check_type, interval
from streaming.declare.delivery import Delivery
from streaming.declare.limits import Limits
from streaming.declare.operator import Operator
from streaming.declare.over_windows import OverWindows
from streaming.declare.receiver import Receiver
from streaming.declare.restarts import ExponentialBackoff, RestartStrategy
from streaming.declare.stream import Stream, check_folder
from streaming.declare.usual import check_usual
from streaming.declare.windowed import Windowed
from streaming.lake import OF_KEYS

_TAKEN = ("log", "batches", "dropped", "source", "rejected", "late", "progress", "trend")


@dataclass(frozen=True, init=False)
class Pipeline:
    """Streams, what is computed from them and what is delivered, run together in one process.

    `Pipeline(name="shop", streams=(orders, payments), operators=(...), deliveries=(...))` is the whole form.
    `Pipeline(flights, (departures_by_origin,))` is short for a pipeline of one stream, which it is named after.

    Files of SQL views join it when the project is looked through, so that streams alone are enough here. A pipeline
    with neither operators nor such views does not run.

    `receivers` land what some of the streams read, in a process beside that one.

    Where it runs continuously, a batch begins every `trigger` at the earliest. `restart` says what happens when its
    process dies, and `identical_failures` how often the same batch may fail in the same way. `stop_within` bounds the
    end of a running batch; `hangs_after` is how long a batch may take before its process is taken for hung. Beyond
    `limits` an alert is raised. With `change_data_feed` its tables have Delta's change data feed.

    Raises:
        DeclarationError: there is no stream, a name is repeated or reserved, an operator or delivery reads what the
            pipeline does not have, or an interval cannot be read.
    """

    name: str
    streams: tuple[Stream, ...]
    operators: tuple[Operator, ...]
    deliveries: tuple[Delivery, ...]
    receivers: tuple[Receiver, ...]
    owner: str
    trigger: str
    restart: RestartStrategy
    identical_failures: int
    stop_within: str
    hangs_after: str
    limits: Limits
    change_data_feed: bool

    def __init__(
        self,
        stream: Stream | None = None,
        views: Iterable[Operator] = (),
        *,
        name: str | None = None,
        streams: Iterable[Stream] = (),
        operators: Iterable[Operator] = (),
        deliveries: Iterable[Delivery] = (),
        receivers: Iterable[Receiver] = (),
        owner: str = "team:data",
        trigger: str = "1 second",
        restart: RestartStrategy | None = None,
        identical_failures: int = 3,
        stop_within: str = "45 seconds",
        hangs_after: str = "10 minutes",
        limits: Limits | None = None,
        change_data_feed: bool = False,
    ) -> None:
        _check_held(stream, views, streams, operators, deliveries, receivers)
        held = (*([] if stream is None else [stream]), *streams)
        if not held:
            raise DeclarationError(
                f"pipeline {name!r} has no stream", "give it streams=(...), or one as its first value.", pipeline=name
            )
        if name is None and len(held) > 1:
            names = ", ".join(repr(entry.name) for entry in held)
            raise DeclarationError(f"a pipeline of the streams {names} needs a name of its own", "give it name='...'.")
        values = {
            "name": held[0].name if name is None else name,
            "streams": held,
            "operators": (*views, *operators),
            "deliveries": tuple(deliveries),
            "receivers": tuple(receivers),
            "owner": owner,
            "trigger": trigger,
            "restart": ExponentialBackoff() if restart is None else restart,
            "identical_failures": identical_failures,
            "stop_within": stop_within,
            "hangs_after": hangs_after,
            "limits": Limits() if limits is None else limits,
            "change_data_feed": change_data_feed,
        }
        for field, value in values.items():
            object.__setattr__(self, field, value)
        self._check()

    def _check(self) -> None:
        check_folder("pipeline", self.name)
        for length in (self.trigger, self.stop_within, self.hangs_after):
            interval(length)
        if self.identical_failures < 1:
            raise DeclarationError(
                f"identical_failures={self.identical_failures!r} would never start {self.name!r}",
                "use 1 or more.",
                field="identical_failures",
                value=self.identical_failures,
            )
        for stream in self.streams:
            if [entry.name for entry in self.streams].count(stream.name) > 1:
                raise DeclarationError(
                    f"pipeline {self.name!r} has stream {stream.name!r} twice",
                    "name each once.",
                    pipeline=self.name,
                    stream=stream.name,
                )
        self._check_reads()
        self._check_dimensions()
        self._check_changes()
        self._check_tables()
        _check_deliveries(self.name, self.streams, self.operators, self.deliveries)
        _check_receivers(self.name, self.streams, self.operators, self.deliveries, self.receivers)
        of_windows = [
            each for each in self.operators if isinstance(each, OverWindows) and each.first_begin(EPOCH) is not None
        ]
        columns = {each.name: {column.name: column.type for column in each.columns_of()} for each in of_windows}
        check_usual(self.name, self.limits.usual, {**{each.name: each.types for each in self.streams}, **columns})

    def _check_reads(self) -> None:
        for operator in self.operators:
            check_name("view", operator.name)
            for stream in operator.reads:
                if stream not in self.streams:
                    names = ", ".join(repr(entry.name) for entry in self.streams)
                    raise DeclarationError(
                        f"view {operator.name!r} reads stream {stream.name!r}, but the pipeline's "
                        f"{'is' if len(self.streams) == 1 else 'are'} {names}",
                        "add it to the pipeline's streams, or, where another pipeline ingests it, follow it: "
                        f"Stream(..., source=Table({stream.name})).",
                        operator=operator.name,
                        stream=stream.name,
                    )
            for below in operator.reads_current:
                if below not in self.operators:
                    names = ", ".join(repr(entry.name) for entry in self.operators)
                    raise DeclarationError(
                        f"{operator.kind_name} {operator.name!r} reads what is current of {below.name!r}, but the "
                        f"operators of pipeline {self.name!r} are {names}",
                        "add it to the pipeline's operators, or, where another pipeline has it, read it as "
                        f"ExternalTable({below.name!r}, {below.name}).",
                        operator=operator.name,
                        value=below.name,
                    )
            for table in operator.external:
                if table.operator in self.operators:
                    raise DeclarationError(
                        f"external table {table.name!r} of {operator.kind_name} {operator.name!r} is an operator of "
                        f"pipeline {self.name!r} itself",
                        "name the operator in of.",
                        operator=operator.name,
                        value=table.name,
                    )

    def _check_dimensions(self) -> None:
        """Refuse whoever looks up rows that nobody in the pipeline computes.

        Raises:
            DeclarationError: with what to add.
        """
        for operator in self.operators:
            for dimension in operator.dimensions:
                if dimension not in self.operators:
                    raise DeclarationError(
                        f"{operator.kind_name} {operator.name!r} looks up rows of {dimension.kind_name} "
                        f"{dimension.name!r}, which is none of the operators of pipeline {self.name!r}",
                        "add it, and its stream, so that it is as far as its stream was with each batch.",
                        operator=operator.name,
                        value=dimension.name,
                    )

    def _check_changes(self) -> None:
        """Refuse whoever would take a row that takes back another one for a row of its own.

        Raises:
            DeclarationError: with the reason, and what to do.
        """
        for operator in self.operators:
            for stream in operator.reads:
                refusal = operator.refuses(stream) if stream.takes_back else ""
                if refusal:
                    raise DeclarationError(
                        f"{operator.kind_name} {operator.name!r} cannot follow stream {stream.name!r}, of which rows "
                        f"are taken back: {refusal}",
                        "Or follow first results: Table(...) without what='current'.",
                        operator=operator.name,
                        stream=stream.name,
                    )
        for delivery in self.deliveries:
            reads = delivery.origin.reads if delivery.sends_log else ()
            signed = next((stream for stream in reads if stream.takes_back), None)
            if signed is not None:
                raise DeclarationError(
                    f"delivery {delivery.name!r} would deliver rows of stream {signed.name!r} that take back others",
                    "Deliver what='current' of what that stream follows, or of an operator that follows it.",
                    delivery=delivery.name,
                    stream=signed.name,
                )

    def _check_tables(self) -> None:
        names = [operator.name for operator in self.operators]
        for operator in self.operators:
            taken = (
                *_TAKEN,
                *((*OF_KEYS, "rows", "forgotten") if any(stream.revised for stream in operator.reads) else ()),
            )
            if names.count(operator.name) > 1 or operator.name in taken:
                raise DeclarationError(
                    f"view name {operator.name!r} of pipeline {self.name!r} is taken; every view needs its own, and "
                    f"{', '.join(taken)} belong to the stream.",
                    pipeline=self.name,
                )
            for suffix in operator.reserved_suffixes:
                if operator.table_name(suffix) in names:
                    raise DeclarationError(
                        f"view name {operator.table_name(suffix)!r} of pipeline {self.name!r} is the place of the "
                        f"{suffix} of view {operator.name!r}",
                        "rename one of them.",
                        pipeline=self.name,
                        operator=operator.name,
                    )

    def check_computes(self) -> None:
        """Refuse to run a pipeline that only ingests.

        Raises:
            DeclarationError: it has no operator, also none of a file; the text says how to get one.
        """
        if not self.operators:
            first = self.streams[0].name
            raise DeclarationError(
                f"pipeline {self.name!r} has streams, and nothing is computed from them",
                f"Write a query over {first} as views/NAME.sql, beside the package of pipelines, as `tidemark new view "
                "NAME --sql` does; or give the pipeline an operator in Python: operators=(...).",
                pipeline=self.name,
            )

    @property
    def logs(self) -> tuple[Stream, ...]:
        """The streams as each log has them: one with a key as its rows come, and as they are added and taken back."""
        return tuple(log for stream in self.streams for log in dict.fromkeys((stream.revisions, stream)))

    @property
    def stream(self) -> Stream:
        """The first stream, which is the only one of the short form."""
        return self.streams[0]

    @property
    def views(self) -> tuple[Windowed, ...]:
        """The operators that are windowed views."""
        return tuple(operator for operator in self.operators if isinstance(operator, Windowed))

    def over_windows_of(self, stream: Stream) -> tuple[OverWindows, ...]:
        """The operators over windows that follow a stream: views, window joins and co-groups."""
        return tuple(each for each in self.operators if isinstance(each, OverWindows) and stream in each.reads)

    @property
    def corrected(self) -> tuple[Windowed, ...]:
        """The views that have corrections."""
        return tuple(view for view in self.views if view.corrected)

    @property
    def backfilled(self) -> tuple[Operator, ...]:
        """All operators that have corrections: views, and whatever else brings late rows in."""
        return tuple(operator for operator in self.operators if operator.corrected)

    @property
    def updated(self) -> tuple[Windowed, ...]:
        """The views that the stream process itself updates."""
        return tuple(view for view in self.views if view.updated)

    def operators_of(self, stream: Stream) -> tuple[Operator, ...]:
        """The operators that read the stream."""
        return tuple(operator for operator in self.operators if stream in operator.reads)

    def pinned_by(self, stream: Stream) -> tuple[Stream, ...]:
        """The control streams of which each batch of the stream records how far they are."""
        followers = (operator for operator in self.operators if stream in operator.follows)
        return tuple(dict.fromkeys(pinned for operator in followers for pinned in operator.pins))

    @property
    def control_streams(self) -> tuple[Stream, ...]:
        """The streams that others pin."""
        pinned = {stream for operator in self.operators for stream in operator.pins}
        return tuple(stream for stream in self.streams if stream in pinned)

    def delivery(self, name: str) -> Delivery:
        """The delivery of that name.

        Raises:
            DeclarationError: there is no such delivery.
        """
        for delivery in self.deliveries:
            if delivery.name == name:
                return delivery
        names = ", ".join(delivery.name for delivery in self.deliveries) or "none"
        raise DeclarationError(
            f"pipeline {self.name!r} has no delivery {name!r}; its deliveries: {names}.",
            pipeline=self.name,
            delivery=name,
        )

    def receiver(self, name: str) -> Receiver:
        """The receiver of that name.

        Raises:
            DeclarationError: there is no such receiver.
        """
        for receiver in self.receivers:
            if receiver.name == name:
                return receiver
        names = ", ".join(receiver.name for receiver in self.receivers) or "none"
        raise DeclarationError(
            f"pipeline {self.name!r} has no receiver {name!r}; its receivers: {names}.",
            pipeline=self.name,
            receiver=name,
        )

    def operator(self, name: str | None = None) -> Operator:
        """The operator of that name; without a name, the first one.

        Raises:
            DeclarationError: there is no such operator.
        """
        for operator in self.operators:
            if name in (None, operator.name):
                return operator
        names = ", ".join(operator.name for operator in self.operators)
        raise DeclarationError(
            f"pipeline {self.name!r} has no view {name!r}; its views: {names}.", pipeline=self.name, operator=name
        )

    def view(self, name: str | None = None) -> Windowed:
        """The windowed view of that name; without a name, the first one.

        Raises:
            DeclarationError: there is no such view.
        """
        for view in self.views:
            if name in (None, view.name):
                return view
        names = ", ".join(view.name for view in self.views) or "none"
        raise DeclarationError(
            f"pipeline {self.name!r} has no view {name!r}; its views: {names}.", pipeline=self.name, operator=name
        )


def _check_held(
    stream: object, views: object, streams: object, operators: object, deliveries: object, receivers: object
) -> None:
    """Refuse what is no stream, operator, delivery or receiver, and one that is given where several are asked for.

    Raises:
        DeclarationError: with the value, and what to write.
    """
    if stream is not None:
        check_type("the first value of Pipeline", stream, Stream, "a Stream, or streams=(...) for several")
    several = (
        *(("views", views, Operator), ("streams", streams, Stream), ("operators", operators, Operator)),
        *(("deliveries", deliveries, Delivery), ("receivers", receivers, Receiver)),
    )
    for what, values, kind in several:
        noun = kind.__name__.lower()
        if isinstance(values, kind):
            raise DeclarationError(
                f"{what} is the {noun} {values.name!r}", f"write a tuple of one: {what}=({values.name},)."
            )
        advice = f"a tuple of {_plural(noun)}, also for one of them"
        check_type(what, values, (tuple, list), advice)
        for value in values if isinstance(values, tuple | list) else ():
            check_type(f"an entry of {what}", value, kind, advice)


def _check_deliveries(
    name: str, streams: Sequence[Stream], operators: Sequence[Operator], deliveries: Sequence[Delivery]
) -> None:
    """Refuse a delivery of what the pipeline does not have, and one whose tables are somebody else's.

    Raises:
        DeclarationError: with what the pipeline has, or whose name is taken.
    """
    tables = {each.table_name(suffix) for each in operators for suffix in ("", *each.reserved_suffixes)}
    for delivery in deliveries:
        if delivery.of not in (*streams, *operators, *deliveries):
            names = [each.name for each in streams] + [each.name for each in operators]
            names += [each.name for each in deliveries if each is not delivery]
            held = ", ".join(map(repr, names))
            raise DeclarationError(
                f"delivery {delivery.name!r} is of {delivery.of.name!r}, which pipeline {name!r} does not have as it "
                f"is declared there; the pipeline has {held}.",
                "Add it to the pipeline, or deliver one of these.",
                delivery=delivery.name,
                pipeline=name,
            )
        others = [each.name for each in deliveries] + [each.name for each in operators]
        others += [stream.name for stream in streams]
        own = {delivery.table_name(suffix) for suffix in delivery.reserved_suffixes}
        if others.count(delivery.name) > 1 or own & {*tables, *others}:
            raise DeclarationError(
                f"delivery name {delivery.name!r} of pipeline {name!r} is taken; every stream, view and delivery needs "
                "a name of its own, also with the suffixes of their tables.",
                "Rename it.",
                pipeline=name,
            )


def _check_receivers(
    name: str,
    streams: Sequence[Stream],
    operators: Sequence[Operator],
    deliveries: Sequence[Delivery],
    receivers: Sequence[Receiver],
) -> None:
    """Refuse a receiver for, or steered by, what the pipeline does not have, and one whose name is somebody else's.

    Raises:
        DeclarationError: with what the pipeline has, or whose name is taken.
    """
    held = ", ".join([repr(stream.name) for stream in streams] + [repr(each.name) for each in operators])
    taken = [each.name for each in streams] + [each.name for each in operators]
    taken += [each.name for each in deliveries] + [each.name for each in receivers]
    taken += [each.table_name(suffix) for each in operators for suffix in each.reserved_suffixes]
    taken += [each.table_name(suffix) for each in deliveries for suffix in each.reserved_suffixes]
    for receiver in receivers:
        of = None if receiver.subscriptions is None else receiver.subscriptions.of
        for what, value in (("lands for", receiver.into), ("asks for what is in", of)):
            if value is not None and value not in (*streams, *operators):
                raise DeclarationError(
                    f"receiver {receiver.name!r} {what} {value.name!r}, which pipeline {name!r} does not have as it is "
                    f"declared there; the pipeline has {held}.",
                    "Add it to the pipeline, or name one of these.",
                    receiver=receiver.name,
                    pipeline=name,
                )
        tables = [receiver.table_name(suffix) for suffix in receiver.reserved_suffixes]
        if taken.count(receiver.name) > 1 or any(table in taken for table in tables):
            raise DeclarationError(
                f"receiver name {receiver.name!r} of pipeline {name!r} is taken; every stream, view, delivery and "
                "receiver needs a name of its own, also with the suffixes of their tables.",
                "Rename it.",
                pipeline=name,
            )


def _plural(noun: str) -> str:
    return "deliveries" if noun == "delivery" else f"{noun}s"
