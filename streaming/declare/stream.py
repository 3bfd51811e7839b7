"""The declaration of a stream: source, format, event time, clock and rules. Declaring executes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from streaming.base import (
    INGESTED_AT,
    ORIGIN,
    BadName,
    DeclarationError,
    check_column_name,
    check_condition,
    check_name,
    check_value,
    interval,
    names_in,
    settle,
    times_among,
)
from streaming.clocks import Clock, Derived
from streaming.contracts import Contract, read_contract
from streaming.declare.contracted import contracted
from streaming.declare.delivered import OFFERS, What
from streaming.declare.freshness import Freshness, check_freshness
from streaming.declare.masks import MASKED_LABELS, ORIGIN_TYPES, Mask, check_masks, origins_read, reads_all
from streaming.declare.rule import Rule
from streaming.declare.snapshots import Snapshots
from streaming.formats import Format, Json
from streaming.sources import Source

_KEPT = ("landing", "reports", "quality")
_NO_KEYS = ("float", "double", "array", "map", "struct", "variant")
"""Types of which two equal values may look different, or which Spark cannot compare."""
_LARGE = ("string", "binary", "array", "map", "struct")
"""Types of which a database may leave a value out that has not changed."""


@dataclass(frozen=True)
class Stream:
    """One event log: what is read, how a payload becomes a row, and which time it carries.

    `derived` adds columns computed by SQL from the payload's, from earlier derived ones, from `_ingested_at` and from
    `_origin`, whose fields are those of the source, such as `_origin.timestamp`;
    a row for which one cannot be computed, such as `a / b` where `b` is 0, or is a time outside the years 1 to 9999, is
    rejected, with the values in the reason.
    `event_time` names a timestamp column, payload or derived (one that is `_ingested_at` means processing time).
    `rules` may also read `_ingested_at`; a row that breaks one is rejected, or is valid with a warning, or stops the
    stream, as the rule says. `keep_raw` keeps the payload of valid rows too.

    `retention`, such as `400 days`, says how long before the watermark the log keeps its days; left out, it keeps all.
    Rows of older days that still come are rejected, with that as the reason, and `maintain` drops the days once nothing
    needs them any more. What was published of them stays. It changes no result, so it may be declared, changed and left
    out at any time; what is dropped stays dropped.

    `key` names the columns that say what a row is about, such as `("order_id",)`: each row is then a *revision*, which
    takes the place of the one before it of the same key. The newest is the one with the greatest `sequence`, a SQL
    expression over the columns and `_origin` whose values can be ordered, such as `version` or `_origin.offset`; one
    that is not greater than what came before changes nothing. `deletes` is the condition of a row which says that its
    key is gone; it needs nothing but key and sequence. Operators then read rows as they are added and taken back, and
    compute with those that stand. `Debezium` tells `sequence` and `deletes` by itself. With `snapshots` each batch is a
    whole extract of a table, which needs a key and neither of the two.

    `forget`, such as `30 days`, bounds what is remembered of keys that are gone. Without it a delete stays for ever, so
    that no older revision brings its row back. The time of a delete is the later one of its stamp and its event time
    (of one without, when it came). At the end of each batch those deletes are forgotten whose time is more than
    `forget` before the watermark after the batch. From then on a revision whose key nobody knows, and whose event time
    is not after the latest delete that is forgotten, is *forgotten*, too: nobody can tell whether its key was gone. It
    changes nothing, is counted, and stays in the log. A `History` of the stream forgets old revisions, too.

    `masked` names columns whose values nobody is to see, such as `{"email": Hash(salt="${SALT}")}`, and what is kept in
    their place; `"customer.email"` is a field of a struct, also within arrays, and `"_origin.key"` and
    `"_origin.headers"` are those of a record of Kafka. Rules judge the value that came; neither it nor a payload that
    has it is ever written or told.
    `fresh_within`, such as `"2 hours"`, is how old the watermark of a running stream may be before it counts as late;
    `Freshness("2 hours", by=("tenant",))` asks it of each tenant, too. `contract` is the data contract that it follows;
    `of_contract` declares a stream by one.

    Raises:
        DeclarationError: a name is unknown, repeated or not allowed, the event time is no timestamp, or the retention
            is shorter than a day; a masked column is one by which rows are ordered.
    """

    name: str
    source: Source
    format: Format
    event_time: str
    clock: Clock
    rules: tuple[Rule, ...] = ()
    derived: Mapping[str, str] = field(default_factory=dict)
    keep_raw: bool = False
    description: str = ""
    retention: str | None = None
    key: tuple[str, ...] = ()
    sequence: str | None = None
    deletes: str | None = None
    snapshots: Snapshots | None = None
    forget: str | None = None
    masked: Mapping[str, Mask] = field(default_factory=dict)
    fresh_within: str | Freshness | None = None
    contract: Contract | None = None

    kind_name = "stream"
    delivers: ClassVar[tuple[What, ...]] = OFFERS[kind_name]

    def __post_init__(self) -> None:
        check_folder("stream", self.name)
        settle(self, f"stream {self.name!r}")
        if self.key and self.format.revisions is not None:
            object.__setattr__(self, "sequence", self.sequence or self.format.revisions.sequence)
            object.__setattr__(self, "deletes", self.deletes or self.format.revisions.deletes)
        if self.retention is not None and interval(self.retention) < timedelta(days=1):
            raise DeclarationError(
                f"retention={self.retention!r} of stream {self.name!r} is shorter than a day, and whole days are "
                "dropped",
                "give it a length such as '400 days', or leave it out to keep everything.",
                field="retention",
                value=self.retention,
                stream=self.name,
            )
        if isinstance(self.clock, Derived) and not self.source.tells_watermark:
            raise DeclarationError(
                f"the clock of stream {self.name!r} is Derived(), and {type(self.source).__name__} tells no watermark",
                "declare BoundedOutOfOrderness, or follow what is current of results whose windows have a length.",
                stream=self.name,
                field="clock",
            )
        if self.name in _upstream(self):
            raise DeclarationError(
                f"stream {self.name!r} follows itself, by way of {', '.join(_upstream(self))}",
                "give one of them another name.",
                stream=self.name,
            )
        taken = [column.name.lower() for column in self.format.columns]
        for name in self.derived:
            check_column_name(name)
            if name.lower() in taken:
                raise DeclarationError(
                    f"derived column {name!r} of stream {self.name!r} exists already",
                    "rename it.",
                    column=name,
                    stream=self.name,
                )
            taken.append(name.lower())
        self._check_event_time()
        names = [rule.name for rule in self.rules]
        for name in names:
            if names.count(name) > 1:
                raise DeclarationError(
                    f"rule {name!r} of stream {self.name!r} is declared twice", "rename one.", stream=self.name
                )
            if name in MASKED_LABELS:
                raise DeclarationError(
                    f"rule {name!r} of stream {self.name!r} has the name of a reason that masks bring with them",
                    "rename it.",
                    value=name,
                    stream=self.name,
                )
        for rule in self.rules:
            check_condition(
                f"rule {rule.name!r} of stream {self.name!r}", rule.condition, {**self.types, INGESTED_AT: "timestamp"}
            )
        if self.clock.moved_by is not None:
            check_condition(f"the clock of stream {self.name!r}", self.clock.moved_by, self.types)
        check_freshness(f"stream {self.name!r}", self.fresh_within, self.types)
        self._check_key()
        self._check_masked()

    def _check_masked(self) -> None:
        """Refuse masks that would let a value through, or of which nothing that the stream needs would be left.

        Raises:
            DeclarationError: with what to declare.
        """
        if not self.masked:
            return
        in_origin = [path for path in self.masked if path in ORIGIN_TYPES]
        check_masks(self.name, self.masked, self.types, self.source.origin)
        told = {
            "the event time": f"`{self.event_time}`",
            "sequence": self.sequence or "1",
            "deletes": self.deletes or "true",
            "the clock": self.clock.moved_by or "true",
            "taken_at of snapshots": (self.snapshots.taken_at if self.snapshots else None) or "1",
        }
        rules = {rule.name: rule.condition for rule in self.rules}
        for what, expression in {**self.derived, **rules, **told}.items():
            if reads_all(expression):
                raise self._unmasked(what, "it reads all columns by '*', also masked ones", "name those that it needs")
        for name in self.derived:
            masked = sorted((self.made_of[name] - {name}) & self.masked_columns)
            masked += origins_read(self.derived[name], in_origin)
            if masked and name not in self.masked:
                raise self._unmasked(
                    name, f"is derived of {', '.join(masked)}, which is masked, and would show it", "mask it, too"
                )
        for what, expression in told.items():
            names = {each for of in names_in(expression) for each in self.made_of.get(of, ())}
            for name in (*sorted(names & self.masked_columns), *origins_read(expression, in_origin)):
                raise self._unmasked(name, f"{what} is made of it", "leave it out of masked, or of that")
        for name in self.key:
            kept = [mask.keeps_identity for path, mask in self.masked.items() if path.partition(".")[0] == name]
            if not all(kept):
                raise self._unmasked(name, "rows would not be told apart by it, which is in the key", "use Hash")
        for rule in self.rules:
            if names_in(rule.condition) & self.masked_columns and type(rule) is not Rule:
                raise self._unmasked(rule.name, "its conditions are read from the column", "leave it out of masked")
        if self.keep_raw and not self.format.masks_payloads:
            raise self._unmasked(
                "keep_raw", f"no value within a payload of {type(self.format).__name__} can be masked", "leave it out"
            )

    def _unmasked(self, value: str, why: str, advice: str) -> DeclarationError:
        return DeclarationError(
            f"masked of stream {self.name!r} cannot be with {value!r}: {why}",
            f"{advice}.",
            field="masked",
            value=value,
            stream=self.name,
        )

    @classmethod
    def of_contract(
        cls,
        path: str | Path,
        *,
        source: Source,
        clock: Clock,
        format: Callable[..., Format] = Json,
        table: str | None = None,
        without: Collection[str] = (),
        **more: Any,
    ) -> Self:
        """A stream as a data contract has it, a file of the Open Data Contract Standard 3; `path` is where it lies.

        Columns, what is required of them, conditions of rows, owners, description, freshness and retention come from
        the file, of which `table` names the table where it has several. `format` makes a format of the columns in
        Spark DDL, and of the names that payloads have for them. The event time is the column of the agreed latency,
        unless `event_time` says otherwise. Checks of a whole table are expectations of the log. A primary key is one,
        too; it is the `key` where `sequence` or `snapshots` is given, or the format tells revisions by itself.

        `more` are fields of the stream, which take the place of those of the file; `rules` are added to its own.
        `without` are places in the file that are left out on purpose.

        Raises:
            ContractError: the file cannot be read, or asks for what cannot be followed; with the place of each.
            DeclarationError: as a stream that is declared by hand.
            MissingExtra: the libraries of the extra `contracts` are not installed.
        """
        values = contracted(read_contract(path, table, without), format, more)
        return cls(source=source, clock=clock, **values)

    def _check_key(self) -> None:
        """Refuse a key of which the newest revision cannot be told.

        Raises:
            DeclarationError: with what to declare.
        """
        if not self.key:
            self._check_without_key()
            return
        self._check_key_columns()
        if self.snapshots is not None:
            self._check_snapshots()
        self._check_sequence()
        self._check_forget()
        self._check_unsent()
        if self.source.takes_back:
            raise DeclarationError(
                f"stream {self.name!r} has a key, and its source takes rows back by itself",
                "leave key, sequence and deletes out.",
                field="key",
                stream=self.name,
            )
        if self.retention is not None:
            raise DeclarationError(
                f"stream {self.name!r} has a key and retention={self.retention!r}, which would drop rows that stand",
                "leave retention out: a row of any day may still be revised.",
                field="retention",
                stream=self.name,
            )

    def _check_without_key(self) -> None:
        for given in ("sequence", "deletes", "snapshots", "forget"):
            if getattr(self, given) is not None:
                raise DeclarationError(
                    f"{given}={getattr(self, given)!r} of stream {self.name!r} is about revisions, and it has no key",
                    "add key=('<column>',), or leave it out.",
                    field=given,
                    stream=self.name,
                )

    def _check_key_columns(self) -> None:
        """Refuse columns that cannot be a key, and rules with the name of one that a key brings with it."""
        for rule in self.rules:
            if rule.name in ("key", "sequence", "deletes"):
                raise DeclarationError(
                    f"rule {rule.name!r} of stream {self.name!r} has the name of a rule that its key brings with it",
                    "rename it.",
                    value=rule.name,
                    stream=self.name,
                )
        for name in self.key:
            type_ = self.types.get(name)
            if name not in self.types or self.key.count(name) > 1 or (type_ or "").startswith(_NO_KEYS):
                raise DeclarationError(
                    f"key={self.key!r} of stream {self.name!r} has {name!r}, which is "
                    f"{'of type ' + str(type_) if name in self.types else 'no column'}",
                    f"name each of its columns once: {', '.join(self.types)}; a number that is no fraction, a text, a "
                    "date, an instant or bytes can be a key.",
                    field="key",
                    value=name,
                    stream=self.name,
                    choices=tuple(self.types),
                )

    def _check_sequence(self) -> None:
        """Refuse a sequence or a condition of deletes that cannot be computed, or none where one is needed."""
        if self.sequence is None and self.snapshots is None:
            raise DeclarationError(
                f"stream {self.name!r} has a key, and nothing tells which of two revisions is the newer one",
                "add sequence='<expression>', such as 'version', or '_origin.offset' where the source keeps the order.",
                field="sequence",
                stream=self.name,
            )
        if self.sequence is not None:
            check_value(f"the sequence of stream {self.name!r}", self.sequence, self._readable)
        if self.deletes is not None:
            check_condition(f"deletes of stream {self.name!r}", self.deletes, self._readable)

    @property
    def _readable(self) -> dict[str, str | None]:
        """The types of what expressions about a revision may read."""
        return {**self.types, INGESTED_AT: "timestamp", ORIGIN: self.source.origin}

    def _check_forget(self) -> None:
        """Refuse to forget where nothing is remembered, or at once."""
        if self.forget is None:
            return
        nothing = self.snapshots is not None or self.deletes is None
        if nothing or interval(self.forget) <= timedelta():
            extracts = "has extracts, which say anew what is gone; one that is there again is dated by the last delete"
            why = extracts if self.snapshots else "declares no deletes"
            raise DeclarationError(
                f"forget={self.forget!r} of stream {self.name!r} is how long a delete is remembered, and "
                f"{'the stream ' + why if nothing else 'none would be'}",
                "leave it out, or give it a length such as '30 days'.",
                field="forget",
                value=self.forget,
                stream=self.name,
            )

    def _check_unsent(self) -> None:
        """Refuse a column that is derived of several, where a change may come without the value of one of them."""
        large = {column.name for column in self.format.columns if column.type.startswith(_LARGE)}
        for name in self.derived if self.as_before else ():
            mixed = sorted(self.payload_of((name,)))
            if len(mixed) > 1 and large & {*mixed}:
                raise DeclarationError(
                    f"derived column {name!r} of stream {self.name!r} is made of {' and '.join(mixed)}, and a change "
                    "may come without the value of one of them, as that stayed as it was",
                    "derive a column of one of them alone, and put them together in the view.",
                    column=name,
                    stream=self.name,
                )

    def _check_snapshots(self) -> None:
        """Refuse extracts whose rows would be revisions by another measure, or which no batch has whole.

        Raises:
            DeclarationError: with what to declare.
        """
        if self.sequence is not None or self.deletes is not None:
            raise DeclarationError(
                f"stream {self.name!r} has snapshots, of which the newest one counts, and sequence={self.sequence!r}, "
                f"deletes={self.deletes!r}",
                "leave both out; a format that tells change events, such as Debezium, is no extract.",
                field="snapshots",
                stream=self.name,
            )
        assert self.snapshots is not None
        if self.snapshots.taken_at is not None:
            what, readable = f"taken_at of the snapshots of stream {self.name!r}", self._readable
            if not (check_value(what, self.snapshots.taken_at, readable) or "timestamp").startswith("timestamp"):
                raise DeclarationError(
                    f"{what} is {self.snapshots.taken_at!r}, which is no timestamp",
                    "write an expression for one, such as '_origin.modified'.",
                    field="taken_at",
                    value=self.snapshots.taken_at,
                    stream=self.name,
                )
        if not self.source.batches_are_extracts:
            raise DeclarationError(
                f"stream {self.name!r} has snapshots, and nothing says that a batch of its source is one extract",
                "let each extract be a file: Files(..., files_per_batch=1).",
                field="source",
                stream=self.name,
            )

    def _check_event_time(self) -> None:
        times = [name for name, type_ in self.types.items() if name in self.derived or type_ == "timestamp"]
        derived = self.types.get(self.event_time)
        if self.event_time not in times or (derived is not None and not derived.startswith("timestamp")):
            raise DeclarationError(
                f"event_time={self.event_time!r} of stream {self.name!r} is no timestamp column"
                f"{'' if derived is None else f', but of type {derived}'}; timestamp or derived columns are: "
                f"{', '.join(times) or 'none'}. For epoch milliseconds derive one with epoch_millis('<column>').",
                field="event_time",
                value=self.event_time,
                stream=self.name,
                choices=tuple(times),
            )

    @cached_property
    def types(self) -> dict[str, str | None]:
        """The Spark type of each column, None where only Spark knows it."""
        types: dict[str, str | None] = {column.name: column.type for column in self.format.columns}
        for name, expression in self.derived.items():
            readable = {**types, INGESTED_AT: "timestamp", ORIGIN: self.source.origin}
            types[name] = check_value(f"derived column {name!r} of stream {self.name!r}", expression, readable)
        return types

    @property
    def times(self) -> frozenset[str]:
        """The columns that are known to be dates or timestamps."""
        return frozenset({self.event_time, *times_among(self.types)})

    @cached_property
    def made_of(self) -> Mapping[str, frozenset[str]]:
        """The columns that each column is made of, itself among them; of nothing `_ingested_at` and `_origin`."""
        made = {column.name: frozenset({column.name}) for column in self.format.columns}
        made |= {INGESTED_AT: frozenset(), ORIGIN: frozenset()}
        for name, expression in self.derived.items():
            made[name] = frozenset({name}).union(*(made[column] for column in names_in(expression)))
        return made

    def payload_of(self, names: Collection[str]) -> tuple[str, ...]:
        """The columns of the payload that the columns `names` are made of, in the order of the format."""
        made = frozenset[str]().union(*(self.made_of.get(name, frozenset()) for name in names))
        return tuple(column.name for column in self.format.columns if column.name in made)

    @property
    def reads(self) -> tuple[Stream, ...]:
        """Itself, as its rows come from no other stream."""
        return (self,)

    @property
    def revised(self) -> bool:
        """True if its log is that of the changes which follow from revisions, which have a log of their own."""
        return bool(self.key)

    @cached_property
    def revisions(self) -> Stream:
        """The stream as it comes, of which the log keeps everything; itself where rows have no key."""
        return _Revisions.of(self) if self.revised else self

    @property
    def revised_by(self) -> dict[str, Any]:
        """The part of the declaration from which changes follow, as JSON values."""
        form = self.format.revisions
        told = {} if form is None else {form.sequence: form.name, form.deletes: form.name}
        extracts = {} if self.snapshots is None else {"snapshots": self.snapshots.taken_at or True}
        sequence, deletes = (told.get(each, each) if each else each for each in (self.sequence, self.deletes))
        forgets = {} if self.forget is None else {"forget": interval(self.forget).total_seconds()}
        return {"key": list(self.key), "sequence": sequence, "deletes": deletes, **extracts, **forgets}

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The facts by which rows are read, judged and stamped from the next batch on, as JSON values with names."""
        clock = {field.name: getattr(self.clock, field.name) for field in fields(self.clock)}
        told = ", ".join(f"{name}={value}" for name, value in clock.items() if value is not None)
        return {
            "format": self.format.words,
            "column": {column.name: f"{column.type}{' not null' * column.required}" for column in self.format.columns},
            "derived column": dict(self.derived),
            "rule": {
                rule.name: rule.condition if rule.rejects else f"{rule.condition} ({rule.on_violation})"
                for rule in self.rules
            },
            "event time": self.event_time,
            "clock": f"{type(self.clock).__name__}({told})",
            "retention": self.retention,
            **({"mask": {path: repr(mask) for path, mask in self.masked.items()}} if self.masked else {}),
            **({"revisions": self.revised_by} if self.revised else {}),
        }

    @cached_property
    def compared(self) -> tuple[str, ...]:
        """The columns of which another value in an extract makes a row another one."""
        times = {*names_in(self.snapshots.taken_at)} if self.snapshots and self.snapshots.taken_at else set()
        return tuple(name for name in self.columns if not times & self.made_of[name])

    @cached_property
    def masked_columns(self) -> frozenset[str]:
        """The columns of which a value, or a part of one, is masked."""
        return frozenset(path.partition(".")[0] for path in self.masked if path not in ORIGIN_TYPES)

    @property
    def masks_origin(self) -> bool:
        """True if a part of the origin is masked."""
        return any(path in ORIGIN_TYPES for path in self.masked)

    @property
    def watched(self) -> tuple[Rule, ...]:
        """The rules of its log that reject no row: those that warn, and those that stop the stream."""
        return () if self.revised else tuple(rule for rule in self.rules if not rule.rejects)

    @property
    def warns(self) -> bool:
        """True if the log has a column which says of each row what rules it breaks that only warn."""
        return any(rule.on_violation == "warn" for rule in self.watched)

    def stopped_by(self, broken: Mapping[str, int]) -> list[Rule]:
        """The rules that stop the stream before a batch; `broken` says how many of its rows break each watched rule."""
        return [rule for rule in self.watched if rule.on_violation == "stop" and broken.get(rule.name)]

    @property
    def concerns(self) -> str:
        """The SQL condition of the valid rows that are revisions; all of them where it is `true`."""
        return "true" if self.format.revisions is None else self.format.revisions.concerns

    @property
    def exempt(self) -> str | None:
        """The SQL condition of the rows that need neither an event time nor to keep a rule; None where all do."""
        if not self.key or self.deletes is None:
            return None
        return f"({self.deletes})" if self.concerns == "true" else f"({self.deletes}) or not ({self.concerns})"

    @property
    def as_before(self) -> str:
        """The column with the names of columns whose value was not sent, and is the one that stands; "" for none."""
        return "" if self.format.revisions is None else self.format.revisions.as_before

    @property
    def takes_back(self) -> bool:
        """True if rows of its log take back others, so that operators compute with those that stand."""
        return self.revised or self.source.takes_back

    @property
    def origin(self) -> str:
        """The type of `_origin` in its log but for what a repair adds, as Spark DDL."""
        signed = ", change: int, identity: string>" if self.revised else ">"
        return f"{self.source.origin.removesuffix('>')}{signed}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the user's columns, payload first, then derived."""
        return (*(column.name for column in self.format.columns), *self.derived)


class _Revisions(Stream):
    """The revisions of a stream with a key, whose log is not that of changes; rows without key or sequence break it."""

    revised = False

    @classmethod
    def of(cls, stream: Stream) -> Stream:
        """The revisions of a stream."""
        values = {each.name: getattr(stream, each.name) for each in fields(stream)}
        rules = stream.rules
        if stream.exempt is not None:
            # Of a row that is gone nothing more is asked, but that it can be told whether it is.
            told = Rule("deletes", f"coalesce(({stream.deletes}), false) in (true, false)")
            rules = (told, *(_unless(stream, rule) for rule in rules))
        own = {"key": " and ".join(f"`{name}` is not null" for name in stream.key)}
        if stream.sequence is not None:
            own["sequence"] = f"({stream.sequence}) is not null"
        if stream.concerns != "true":
            own = {name: f"not ({stream.concerns}) or ({each})" for name, each in own.items()}
        return cls(**{**values, "rules": (*map(Rule, own.keys(), own.values()), *rules)})

    def __post_init__(self) -> None:
        """Nothing is left to be checked."""

    @property
    def takes_back(self) -> bool:
        return False


def _unless(stream: Stream, rule: Rule) -> Rule:
    """The rule of all rows that are not exempt, and of which the values were sent; one of conditions is of all rows."""
    if type(rule) is not Rule:
        return rule
    unless = [f"({stream.exempt})"]
    if stream.as_before:
        names = ", ".join(f"'{name}'" for name in stream.payload_of(names_in(rule.condition)))
        unless += [f"arrays_overlap(`{stream.as_before}`, array({names}))"] if names else []
    return replace(rule, condition=f"{' or '.join(unless)} or ({rule.condition})")


def _upstream(stream: Stream) -> list[str]:
    """The names of the streams that a stream follows, however far away."""
    followed = [each for of, _ in stream.source.follows for each in of.reads]
    return list(dict.fromkeys(name for each in followed for name in (each.name, *_upstream(each))))


def epoch_millis(column: str) -> str:
    """SQL for the timestamp of `column` in milliseconds since the epoch; null outside the years 1 to 9999."""
    (name,) = names_in(column)
    return f"case when {name} between -62135596800000 and 253402300799999 then timestamp_millis({name}) end"


def check_folder(what: str, name: str) -> None:
    """Refuse a `name` that cannot be a folder in the root of the lake.

    Raises:
        BadName: it is no name, or the lake keeps that folder for itself.
    """
    check_name(what, name)
    if name in _KEPT:
        raise BadName(
            f"{name!r} cannot name a {what}: the lake keeps {', '.join(_KEPT)} for itself.", "Rename it.", value=name
        )


def check_some_streams(named: str, of: Stream | tuple[Stream, ...]) -> None:
    """Refuse an `of` without a stream; `named` says of which declaration it is.

    Raises:
        DeclarationError: with what to write.
    """
    if of == ():
        raise DeclarationError(f"of= {named} is empty", "write the stream that it reads, or a tuple of several.")
