"""Files that land in a folder, as a source: each is taken once, whole, in order of modification time and name."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import unquote

from streaming.base import DeclarationError, F, SourceError, check_number, check_type, to_micros
from streaming.lake import Lake
from streaming.sources.announced_files import AnnouncedBacklog, AnnouncedFiles, check_on_store
from streaming.sources.file_contents import CONTENT, content_of, logged_contents, without_copies
from streaming.sources.file_lines import shared_out
from streaming.sources.file_payloads import FileBounds, Payloads, check_payloads, cut_files, is_read_whole, is_utf8
from streaming.sources.file_records import records_of
from streaming.sources.landed_files import (
    FilesBacklog,
    LandedFile,
    TakenFiles,
    as_glob,
    checked_names,
    listing_of,
    matcher,
    path_of,
    planned_files,
    quoted,
    relative_path,
    undecoded_names,
    undecoded_warning,
    unreadable,
    vanished,
)
from streaming.sources.source import (
    FileRecords,
    Memory,
    Reading,
    Source,
    SourceBacklog,
    SourceChange,
    SourceComparison,
    Taken,
    older_copy,
)
from streaming.sources.sqs_queue import SqsQueue
from streaming.spark import (
    OF_ONE_TASK,
    FileInfo,
    JarGroup,
    TakenFile,
    add_storage,
    announced,
    exists,
    make_checkpoint,
    ordered,
    planned,
    rename_taken,
    storage_jars,
    taken_entry,
    visible_files,
)
from streaming.tables import storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_log = logging.getLogger(__name__)

_DESCRIBED = 20

_PLAN = "plan"
"""Under this name a log remembers which files its newest batch was planned of."""
_ANNOUNCED: dict[str, AnnouncedFiles] = {}
"""By the checkpoint of the query that reads the files: a message that was received comes to nobody else for a while."""


@dataclass(frozen=True)
class Files(Source):
    """Text files that are moved into `path` whole, taken in order of modification time, and then of path.

    Write a file under a hidden name and rename it: it is read once. A name is hidden that begins with `.`, or with `_`
    and has no `=`, as with Spark. `path` is relative to the lake's root unless it is absolute or a URI. Files in its
    sub-folders are read too, those in hidden ones are not; so a file that was taken may be moved into a hidden folder
    such as `_done`, but nowhere else below `path`.
    Links are followed; a file below has its own path, whatever links lead there as well. One whose name is not UTF-8 is
    left out, and told of.

    `identity`: by what a file is known that was taken before. `"path"`: one that is there again under another path is
    read again, and its rows count twice. `"content"`: one with the same bytes is not, and the log of the process says
    so; two files that are equal by chance are one, then. Each file is read once more for it, by the driver, and a
    process that begins reads which files the log has: those that retention has dropped are not known any more, nor
    those that were read before this was declared.

    `names`: patterns of the names of files that are read, such as `"*.json"` or `("*.json", "*.jsonl")`; others are
    left alone. `*` stands for any text, `?` for one character.

    `payloads`: what a payload is. `"lines"`: each line. `"file"`: a whole file, such as one JSON object on many lines.
    `"array"`: each element of the JSON array that a file is; one that is no array is one payload. `CsvRecords()`: each
    record of CSV, also with line ends within its quotes. All but lines are read whole, so that a file may have no more
    than `longest_line` bytes.

    `encoding`: that of the files, such as `"latin-1"` or `"cp1252"`; payloads are in UTF-8 from here on, `_raw` too.

    Every path that was taken is remembered for ever, by Spark at half a kilobyte of the driver's memory each: deliver
    files of minutes, not of seconds, where a stream is to run for years.

    A batch takes at most `files_per_batch` files, or files of at most `bytes_per_batch` bytes in all, but one at least,
    as files are taken whole; without either it takes one file. However much has gathered, a batch is no larger.

    `partition`: a regular expression with one group over a file's path. The group's text names the source partition
    of the file's rows, "" where nothing matches; the clock goes by the slowest partition. Without it there is one
    partition, "".

    Files whose names end with `.gz`, `.bz2`, `.zst` or `.deflate` are unpacked. One that unpacks to more than
    `largest_unpacked` bytes, or that has a line of more than `longest_line`, stops the stream before anything of its
    batch is taken: a few bytes may stand for more than the machine has. Those whose names end with `.snappy` or `.lz4`,
    in the framing of Hadoop, are unpacked without that look, as a byte of them stands for 255 at most; of them it is
    only made sure that they have as many bytes as they say.

    `notified_by`: a queue into which the store writes a message for each file, by which new files are found instead of
    by listing the folder, which has to lie on S3.
    """

    path: str
    files_per_batch: int | None = None
    bytes_per_batch: int | None = None
    partition: str | None = None
    names: str | tuple[str, ...] = ()
    payloads: Payloads = "lines"
    encoding: str = "utf-8"
    longest_line: int = 64_000_000
    largest_unpacked: int = 10_000_000_000
    identity: Literal["path", "content"] = "path"
    notified_by: SqsQueue | None = None

    can_remake_checkpoint: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("files_per_batch", "bytes_per_batch"):
            cap = getattr(self, name)
            if cap is not None and cap < 1:
                raise DeclarationError(f"{name}={cap!r} reads nothing; use 1 or more.")
        # Spark's file source takes maxFilesPerTrigger or maxBytesPerTrigger, not both.
        if self.files_per_batch is not None and self.bytes_per_batch is not None:
            raise DeclarationError(
                f"files_per_batch={self.files_per_batch!r} and bytes_per_batch={self.bytes_per_batch!r} exclude one "
                "another; keep the one that bounds a batch more tightly."
            )
        for name in ("longest_line", "largest_unpacked"):
            check_number(f"{name}={getattr(self, name)!r}", getattr(self, name), "number of bytes")
        if self.partition is not None:
            _check_pattern(self.partition)
        if self.identity not in ("path", "content"):
            raise DeclarationError(f"identity={self.identity!r} of Files is unknown; write 'path' or 'content'.")
        if self.notified_by is not None:
            check_type("notified_by of Files", self.notified_by, SqsQueue, "SqsQueue('https://sqs...')")
        object.__setattr__(self, "names", checked_names(self.names))
        check_payloads(self.payloads, self.encoding)

    @property
    def origin(self) -> str:
        """Path, modification time and size of the file, the place within it, and what its bytes are known by."""
        content = f", {CONTENT}: string" if self.identity == "content" else ""
        return f"struct<path: string, modified: timestamp, size: bigint, position: bigint{content}>"

    @property
    def jars(self) -> tuple[JarGroup, ...]:
        """Those of the storage that `path` names."""
        return storage_jars(self.path)

    @property
    def partitioned(self) -> bool:
        """True if `partition` is declared."""
        return self.partition is not None

    @property
    def batches_are_extracts(self) -> bool:
        """True if it is declared that a batch takes one file."""
        return self.files_per_batch == 1

    @property
    def bounds(self) -> FileBounds:
        """The bounds of what a file may ask of whoever reads it."""
        return FileBounds(self.longest_line, self.largest_unpacked, is_read_whole(self.payloads))

    @property
    def larger_batches(self) -> str:
        """A higher cap, or larger files."""
        cap = f"bytes_per_batch={self.bytes_per_batch}" if self.bytes_per_batch else None
        return f"raise {cap or f'files_per_batch={self.files_per_batch or 1}'} of the source, land larger files"

    def location(self, lake: Lake) -> str:
        """The landing folder, as an absolute path or URI."""
        return lake.path(self.path)

    def check_there(self, spark: SparkSession, reading: Reading) -> None:
        """Refuse a landing folder that is not there.

        Raises:
            SourceError: naming the folder.
            JarError: the jars of the storage on which it lies are neither there nor to be had.
        """
        location = self.location(reading.lake)
        if self.notified_by is not None:
            check_on_store(location)
        add_storage(spark, location)
        if not exists(spark, location):
            reason = f"the landing folder {location!r} does not exist; create it, or correct Files({self.path!r})."
            raise SourceError(f"{reason} Nothing was read.")

    def read(self, spark: SparkSession, reading: Reading) -> DataFrame:
        """A streaming frame of `_raw`, text that may be no UTF-8, and `_origin` (path, modification time, size).

        Raises:
            SourceError: the folder does not exist.
        """
        self.check_there(spark, reading)
        location = self.location(reading.lake)
        undecoded = undecoded_warning(undecoded_names(location))
        if undecoded:
            _log.warning("%s: %s", location, undecoded)
        content = (
            spark.readStream.format("text")
            .option(*self._cap)
            # Spark skips files that are older than the newest one by more than this (see spark/FACTS.md, Files).
            .option("maxFileAge", "36500d")
            # Without it a file in a sub-folder is never read, and nothing tells.
            .option("recursiveFileLookup", "true")
            .options(**({"pathGlobFilter": as_glob(self.names)} if self.names else {}))
            .option("wholetext", is_read_whole(self.payloads))
            .load(self._listed(spark, location, reading.checkpoint))
        )
        rows = content.select(
            F.col("value").alias("_raw"),
            F.struct(
                F.col("_metadata.file_path").alias("path"),
                F.col("_metadata.file_modification_time").alias("modified"),
                F.col("_metadata.file_size").alias("size"),
            ).alias("_origin"),
        )
        return cut_files(rows, self.payloads, self.encoding)

    def _listed(self, spark: SparkSession, location: str, checkpoint: str) -> str:
        """The URI under which Spark lists the files that it is to take."""
        if self.notified_by is None:
            return ordered(spark, location)
        files = AnnouncedFiles(self.notified_by, location, checkpoint, self.names)
        before = _ANNOUNCED.get(checkpoint)
        if before is not None and before.is_of(files):
            files = before
        _ANNOUNCED[checkpoint] = files
        files.begin()
        name = blake2b(checkpoint.encode(), digest_size=8).hexdigest()
        return announced(spark, location, name, files.waiting)

    @property
    def _cap(self) -> tuple[str, int]:
        if self.bytes_per_batch is not None:
            return "maxBytesPerTrigger", self.bytes_per_batch
        return "maxFilesPerTrigger", self.files_per_batch or 1

    def take(self, spark: SparkSession, reading: Reading, query_batch: int, rows: DataFrame) -> Taken:
        """The rows with their positions in the batch, which a streaming frame cannot number.

        Raises:
            SourceError: a file of the batch is gone, which Spark plans anew and would leave out in silence; or it is
                too large.
        """
        landing = self.location(reading.lake)
        files = planned_files(spark, reading.checkpoint, query_batch, landing, self.bounds)

        def numbered() -> DataFrame:
            is_little = len(files) > 1 and sum(file.size for file in files) <= OF_ONE_TASK
            position = F.col("_origin").withField("position", F.monotonically_increasing_id())
            return (rows.coalesce(1) if is_little else rows).withColumn("_origin", position)

        if self.identity == "path":
            are_lines = self.payloads == "lines" and is_utf8(self.encoding)
            tasks = spark.sparkContext.defaultParallelism
            taken = Taken(numbered, parts=shared_out(files, landing, tasks) if are_lines else ())
        else:
            # Files without a byte have no rows, and are all the same.
            paths = [file.path for file in files if file.size]
            taken = without_copies(spark, reading, landing, paths, numbered, _decoded(F.col("_origin.path")))
        plan, remember_rows = _plan(query_batch, landing, (file.path for file in files)), taken.remember

        def remember(written: Callable[[], DataFrame], counts: Mapping[str, int]) -> Memory:
            return {**remember_rows(written, counts), _PLAN: plan}

        waiting = _ANNOUNCED.get(reading.checkpoint) if self.notified_by is not None else None
        committed = taken.committed if waiting is None else lambda: waiting.commit(query_batch)
        return replace(taken, remember=remember, committed=committed)

    def check_repeated(self, reading: Reading, query_batch: int) -> None:
        """Refuse a batch of other files than those of the batch that the log has under its number.

        Raises:
            CheckpointError: the checkpoint is an older copy, with which the batch was planned anew.
        """
        held = reading.memory.get(_PLAN)
        # Earlier releases did not remember it.
        if held is None or held["batch"] != query_batch:
            return
        if held != _plan(query_batch, self.location(reading.lake), planned(reading.checkpoint, query_batch)):
            raise older_copy(reading.checkpoint, f"its batch {query_batch} has other files than that of the log")

    def records(self, lake: Lake, origin: Mapping[str, Any], most: int) -> FileRecords | None:
        """The payloads of the row's file, where it is in the landing folder as it was taken."""
        return records_of(self.location(lake), origin, self.payloads, self.encoding, most)

    def partition_of(self, origin: Column) -> Column:
        """The text that the group of `partition` matches in the file's path."""
        if self.partition is None:
            return F.lit("")
        return F.coalesce(F.regexp_extract(_decoded(origin["path"]), self.partition, 1), F.lit(""))

    def order_of(self, origin: Column) -> Column:
        """Modification time, path, and the place within the file."""
        return F.struct(origin["modified"], origin["path"], origin["position"])

    def time_of(self, origin: Column) -> Column:
        """The file's modification time."""
        return origin["modified"]

    def describe_batch(self, checkpoint: str, query_batch: int) -> str:
        """The paths of its files: the first ones, where there are many."""
        paths = planned(checkpoint, query_batch)
        more = f" and {len(paths) - _DESCRIBED:,} more" if len(paths) > _DESCRIBED else ""
        return ", ".join(paths[:_DESCRIBED]) + more

    def explain(self, spark: SparkSession, reading: Reading, text: str) -> SourceError | None:
        """The error for a file that vanished while it was read, or is damaged, or for a queue that does not answer."""
        raised = re.search(r"(?:SourceError|StoreError): ([^\n]+)", text) if self.notified_by is not None else None
        if raised:
            return SourceError(raised[1])
        missing = re.search(r"FILE_NOT_EXIST\][^\n]*? file (.+?)\. File does", text)
        if missing:
            return vanished(missing[1])
        damaged = re.search(r"\[FAILED_READ_FILE[^\]]*\][^\n]*? file (\S+)\. ", text)
        return unreadable(damaged[1], _cause(text)) if damaged else None

    def backlog(self, lake: Lake, checkpoint: str) -> Callable[[Memory], SourceBacklog]:
        """Counts the files of the landing folder that are in no batch of the query, or the messages of its queue."""
        files: FilesBacklog | AnnouncedBacklog
        if self.notified_by is None:
            files = FilesBacklog(self.location(lake), checkpoint, self.names)
        else:
            files = AnnouncedBacklog(self.notified_by, self.location(lake), checkpoint, self.names)
        return lambda memory: files.count()

    def compare(self, spark: SparkSession, lake: Lake, origins: DataFrame) -> SourceComparison:
        """Files changed after they were ingested, and files that are not ingested yet."""
        landing = self.location(lake)
        contents = {} if self.identity == "path" else logged_contents(origins)
        return _compare_files(
            spark, landing, origins, self.names, lambda path: bool(contents) and content_of(landing, path) in contents
        )

    def move(self, checkpoint: str, recorded: str, there: Lake, to: Lake) -> int:
        """A folder in the lake goes with it: the files that no batch has taken are copied, and it returns their number.

        One that is declared by an absolute path or URI is read from where it is.
        """
        return move_files(checkpoint, recorded, self.location(there), self.location(to), self.names)

    def remake_checkpoint(
        self, checkpoint: str, lake: Lake, query: str, query_batch: int, origins: Iterable[Mapping[str, Any]]
    ) -> None:
        """A batch takes whole files, so that each of which the log has a row was taken."""
        landing = self.location(lake)
        taken = {_taken_uri(landing, self.path, origin["path"]): origin["modified"] for origin in origins}
        files = (TakenFile(0, path, to_micros(at) // 1000) for path, at in sorted(taken.items()))
        make_checkpoint(checkpoint, query, query_batch, files)

    def recorded(self, checkpoint: str, lake: Lake) -> str | None:
        """The folder of the files that were taken, where the lake was moved since."""
        return _recorded_folder(checkpoint, self.path, self.location(lake))


def _decoded(path: Column) -> Column:
    """The path that Spark tells URL-encoded."""
    # Spark's decoder would take a plus for a space.
    return F.try_url_decode(F.replace(path, F.lit("+"), F.lit("%2B")))


def _cause(text: str) -> str:
    """The innermost exception that Spark tells of, on one line."""
    causes = re.findall(r"Caused by: (?:[\w.$]+\.)?(\w+(?:: [^\n]+)?)", text)
    return causes[-1] if causes else "it is damaged"


def _check_pattern(pattern: str) -> None:
    advice = "write one with exactly one group, such as r'/(p[0-9]+)-[^/]*$'"
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise DeclarationError(f"partition={pattern!r} is not a regular expression ({error}); {advice}.") from error
    if groups != 1 or "(?P" in pattern:
        named = ", named as Java does not know it" if "(?P" in pattern else ""
        raise DeclarationError(f"partition={pattern!r} has {groups} groups{named}; {advice}.")


def _compare_files(
    spark: SparkSession, landing: str, origins: DataFrame, names: Sequence[str], is_copy: Callable[[str], bool]
) -> SourceComparison:
    """The differences of the files of `landing` from what `origins` (column `_origin`) say of them, ordered by path.

    A file that is gone is no change: it may be removed once it is in the log. Neither is an empty one, one whose name
    is none of `names`, or one whose path the log does not have, but the bytes of which it has (`is_copy`).
    """
    ingested, is_meant = _ingested(origins), matcher(names)
    changes = [SourceChange("waiting", name, undecoded_warning([name])) for name in undecoded_names(landing)]
    files = (file for file in visible_files(spark, landing) if is_meant(file.path))
    for file in sorted(files, key=lambda info: info.path):
        versions = ingested.get(_identity(file.path), [])
        if not versions and file.size and not is_copy(file.path):
            text = f"{file.path} ({file.size} bytes) is not in the log yet; run the pipeline."
            changes.append(SourceChange("waiting", file.path, text))
        elif versions and all((file.size, file.modified) != (info.size, info.modified) for info in versions):
            changes.append(SourceChange("changed", file.path, _changed_text(file, versions[-1])))
    return SourceComparison(len(ingested), "files", tuple(changes))


def _changed_text(file: FileInfo, ingested: FileInfo) -> str:
    return (
        f"{file.path} was ingested with {ingested.size} bytes (modified {ingested.modified} ms) and has {file.size} "
        f"bytes (modified {file.modified} ms) now. A file is read once: deliver what was added or corrected as a new "
        "file under a new name."
    )


def _ingested(origins: DataFrame) -> dict[str, list[FileInfo]]:
    """The entries of the log for each file; more than one only where a new log was begun over the same files."""
    rows = (
        origins.where(F.col("_origin").isNotNull())
        .select(F.col("_origin.path"), F.col("_origin.size"), F.unix_millis("_origin.modified").alias("modified"))
        .distinct()
        .orderBy("path", "modified")
        .collect()
    )
    files: dict[str, list[FileInfo]] = {}
    for row in rows:
        # Spark's path column is URI-encoded, a listing is not.
        path = unquote(row["path"])
        files.setdefault(_identity(path), []).append(FileInfo(path, row["size"], row["modified"]))
    return files


def _identity(path: str) -> str:
    """Hadoop writes local paths as `file:/a`, Spark as `file:///a`."""
    return "file:/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path


def move_files(checkpoint: str, recorded: str, there: str, to: str, names: Sequence[str] = ()) -> int:
    """Copy the files that wait in the folder `there` into the folder `to`, and let the checkpoint know that folder.

    The checkpoint says which files of the folder `recorded` were taken, which `there` may be a copy of: they stay
    taken under their names. Returns how many files were copied; none that is there already.
    """
    if path_of(recorded) == path_of(there) == path_of(to):
        return 0
    waiting = 0 if path_of(there) == path_of(to) else _copy_waiting(checkpoint, recorded, there, to, names)
    rename_taken(checkpoint, lambda uri: _uri(to, relative_path(unquote(uri), recorded)))
    return waiting


def _recorded_folder(checkpoint: str, path: str, landing: str) -> str | None:
    """The folder of the file that was taken last, if it ends with `path` as `landing` does, and is another one."""
    names = (name.removesuffix(".compact") for name in storage.files_in(f"{checkpoint}/sources/0"))
    newest = max((int(name) for name in names if name.isdigit()), default=None)
    file = None if newest is None else next(iter(taken_entry(checkpoint, newest) or ()), None)
    if file is None or path_of(file.path).startswith(f"{path_of(landing)}/"):
        return None
    folder, below, _ = path_of(file.path).rpartition(f"/{path.strip('/')}/")
    return f"{folder}{below}".rstrip("/") if below else None


def _copy_waiting(checkpoint: str, recorded: str, there: str, to: str, names: Sequence[str]) -> int:
    taken = TakenFiles(recorded, checkpoint)
    taken.read_on()
    files, root = storage.resolve(to)
    files.create_dir(root, recursive=True)
    entries = sorted(listing_of(there, names).files, key=lambda file: (file.modified_ns, file.name))
    modified = taken.modified([file.name for file in entries])
    waiting = [entry for entry, modification_time in zip(entries, modified, strict=True) if modification_time is None]
    for file in waiting:
        _copy(there, to, file)
    return len(waiting)


def _copy(there: str, to: str, file: LandedFile) -> None:
    """Put a copy in place whole, with the same modification time where the storage lets one set it: it orders files."""
    folder, _, last = file.name.rpartition("/")
    source, root = storage.resolve(f"{there}/{folder}".rstrip("/"))
    target, place = storage.resolve(f"{to}/{folder}".rstrip("/"))
    hidden = f"{place}/.{last}"
    storage.make_folder(target, place)
    with source.open_input_stream(f"{root}/{last}") as content, target.open_output_stream(hidden) as copy:
        copy.write(content.read())
    if storage.is_on_disk(target):
        os.utime(hidden, ns=(file.modified_ns, file.modified_ns))
    target.move(hidden, f"{place}/{last}")


def _taken_uri(landing: str, path: str, origin_path: str) -> str:
    """A file of the landing folder by the URI that Spark's source knows it by, where rows hold it as `origin_path`.

    The folder is declared as `path`; where it was another one when the file was read, the lake was moved since.
    """
    name, below = path_of(unquote(origin_path)), f"{path_of(landing)}/"
    if name.startswith(below):
        return _uri(landing, name.removeprefix(below))
    return _uri(landing, name.rpartition(f"/{path.strip('/')}/")[2])


def _uri(folder: str, name: str) -> str:
    """The file as Spark's source writes it: an encoded URI."""
    path = f"{folder}/{name}"
    scheme, separator, rest = path.partition("://")
    address, below = (f"{scheme}://", rest) if separator else ("file://", path)
    return address + quoted(below)


def _plan(query_batch: int, landing: str, paths: Iterable[str]) -> dict[str, Any]:
    """The number of a batch, and a digest of its files by their paths below the folder, which itself may be moved."""
    names = sorted(relative_path(path, landing) for path in paths)
    return {"batch": query_batch, "files": blake2b(repr(names).encode(), digest_size=8).hexdigest()}
