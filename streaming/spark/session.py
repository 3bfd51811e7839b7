"""The one Spark session factory: the command line, Dagster and the tests all start Spark here."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from py4j.java_collections import JavaArray
from py4j.java_gateway import JavaClass, JavaMember, JavaObject, JavaPackage, JVMView
from pyspark import SparkContext
from pyspark.sql import SparkSession

from streaming.base import LOOPBACK
from streaming.lake import SECRET, Settings
from streaming.spark import worker_daemon
from streaming.spark.class_sharing import archive_options
from streaming.spark.files import OF_ONE_TASK
from streaming.spark.jars import S3, are_there, jars_of, spark_jars
from streaming.spark.launch import launch
from streaming.spark.sketches import silence_sketches, sketches_jar
from streaming.spark.sockets import acknowledge_at_once, worker_sockets
from streaming.spark.user_lists import CLASS_PATH, joined_lists, users_lists
from streaming.tables import s3

_DEEP = "-Xss16m"
"""Java's regular expressions recurse with each character that a group repeats, and where the stack ends Spark ends."""
JVM_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
"""Variables of the environment from which Java or Spark take options of the JVM."""
_OPTIONS = "spark.driver.extraJavaOptions"
_QUICKLY = "-XX:TieredStopAtLevel=1"
_LOGGING = {"text": "log4j2.properties", "json": "log4j2-json.properties"}
_PLAIN_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_FUNCTIONS = "org.apache.spark.sql.functions"
_SAME_FOR_THE_SAME_TEXT = ("col", "expr")
"""Functions of Spark that make a column of a text. A column is a value, also where it stands for a random number."""
_COLUMNS = 2_000
"""The greatest number of columns that are kept, so that their memory is bounded."""
_OF_ONE_CALL = 10
"""Java's `List.of` takes so many elements."""


def lenient_session(spark: SparkSession) -> SparkSession:
    """A session beside `spark` for conditions that come as rows: a cast or a division that is not possible is null."""
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", "false")
    # Compiling a thousand conditions takes minutes and then fails, as a method of the JVM holds no more than 64 KB.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


def spark_conf(settings: Settings) -> dict[str, str]:
    """Every Spark setting of the platform, the user's own on top; of lists, theirs behind ours."""
    lists = users_lists(settings)
    archive = archive_options(lists.get(CLASS_PATH, ""))
    *delta, local_files = spark_jars()
    # The workers of a cluster are sent them.
    jars = [] if _is_local(settings.master) else list(delta)
    on_s3 = s3.on_s3(settings.lake.root)
    if on_s3:
        s3.check_endpoint()
    # Sources and tables of others may lie there where the lake does not; who has fetched the client, has such.
    with_s3 = on_s3 or are_there(S3)
    if with_s3:
        jars += jars_of(S3)
    logging = (Path(__file__).parent / _LOGGING[settings.log_format]).as_uri()
    conf = {
        "spark.master": settings.master,
        "spark.app.name": "tidemark",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.shuffle.partitions": str(_cores(settings.master)),
        # In every batch the source lists its own log. What is older goes, but for the newest hundred entries and the
        # one that sums up those before; with the default of ten minutes each batch is dearer than the one before it.
        "spark.sql.streaming.fileSource.log.cleanupDelay": "1m",
        # The default of 50 runs 50 tasks at the first write of a tiny table.
        "spark.databricks.delta.snapshotPartitions": "2",
        # Tables are read by the paths of their files, which need no job to be looked at one by one.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
        # INT96 carries no statistics.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.driver.memory": "2g",
        # Nothing is kept there, yet Spark creates the folder; the default is in the current one.
        "spark.sql.warehouse.dir": f"{tempfile.gettempdir()}/tidemark-warehouse",
        # Asking where in Python each expression is built doubles what building costs, and names no line of the user's.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Spark describes the plan of each query for its page of queries, and again as the plan changes.
        "spark.sql.ui.explainMode": "simple",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        _OPTIONS: f"{_collector()} {_DEEP} -Dlog4j2.configurationFile={logging} {archive}",
    }
    if _is_local(settings.master):
        # Spark's driver listens for executors, though there are none; by itself where every machine reaches it.
        conf |= {"spark.driver.bindAddress": LOOPBACK, "spark.driver.host": LOOPBACK}
        # Each exchange of a query would be a job of its own, planned anew when the one before it is done, which makes
        # small steps a sixth dearer. Here a shuffle has one part a core, so that there is nothing to gain by it.
        conf["spark.sql.adaptive.enabled"] = "false"
        # Classes of `spark.jars` come from no class archive. Hadoop, too, looks for its own only where Spark's are.
        conf[CLASS_PATH] = os.pathsep.join(map(str, (*delta, local_files, sketches_jar())))
        conf["spark.hadoop.fs.file.impl"] = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
        conf["spark.python.daemon.module"] = worker_daemon.__name__
        if settings.lake.local() is not None:
            # To open a file of a disk is less work than to read four megabytes, for which Spark takes it by default.
            # Spark divides no file that is smaller than this, and lines of files are told by that.
            conf["spark.sql.files.openCostInBytes"] = str(OF_ONE_TASK)
    if settings.scratch is not None:
        conf["spark.local.dir"] = str(settings.scratch)
        # Compression unpacks its native libraries there, which a killed process leaves behind.
        conf[_OPTIONS] += f' -Djava.io.tmpdir="{settings.scratch}"'
    if settings.lake.local() is not None or on_s3:
        # The default manager forks dozens of processes a batch on a local disk, and looks twice for each file on S3,
        # where its renames are no more atomic than these.
        conf["spark.sql.streaming.checkpointFileManagerClass"] = _PLAIN_CHECKPOINTS
    if on_s3:
        # A task's file is moved once, by the task, not twice: a move is a copy there. What a job has moved that failed,
        # lies in a folder that nobody commits.
        conf["spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version"] = "2"
    if with_s3:
        conf |= s3.hadoop_settings()
    if jars:
        conf["spark.jars"] = ",".join(map(str, jars))
    return {**conf, **settings.spark_overrides(), **joined_lists(conf, lists)}


def start_session(settings: Settings | None = None, *, is_short: bool = False) -> SparkSession:
    """The running session, or a new one.

    `is_short`: it is for little work, so that the JVM of a new one compiles quickly and not well. Half of what a short
    command costs goes into compiling otherwise; long work would take two to three times as long.

    Raises:
        JavaError: Java is missing, or of a version on which Spark does not start.
        JarError: a jar is neither there nor to be had.
        SettingsError: an override cannot be read.
    """
    settings = settings or Settings()
    # Python workers run `python3` of the PATH unless told otherwise; on other machines Python may lie elsewhere.
    if _is_local(settings.master) or "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = spark_conf(settings)
    if is_short:
        conf[_OPTIONS] = f"{_QUICKLY} {conf[_OPTIONS]}"
    acknowledge_at_once()
    # Workers on another machine may have no folder whose path is short enough.
    if _is_local(settings.master) and SparkContext._active_spark_context is None:
        conf = {**worker_sockets(settings.scratch), **conf}
    _start_java({key: value for key, value in conf.items() if not SECRET.search(key)})
    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    silence_sketches(session)
    _spare_calls(session)
    return session


def _start_java(conf: Mapping[str, str]) -> None:
    """Start the JVM, if there is none yet, with settings that anybody may see.

    They are on its command line, which every user of the machine can read; others are told to the JVM once it runs.
    """
    with SparkContext._lock:
        if SparkContext._gateway is None:
            SparkContext._ensure_initialized(gateway=launch(conf))


def mark_tasks(spark: SparkSession, query: str, batch: int) -> None:
    """Mark the tasks that this thread starts from now on, so that Spark logs of which batch they are."""
    spark.sparkContext.setLocalProperty("mdc.query", query)
    spark.sparkContext.setLocalProperty("mdc.batch", str(batch))


def _collector() -> str:
    """Rows leave garbage that is dead at once, and this collector takes a tenth less of all CPU than the default.

    The heap grows only while cleaning takes more than a 15th of the time, not a hundredth as by default: at a 15th it
    is a tenth to a fifth smaller than at a 25th, for the same CPU.
    """
    # Java does not start where two are asked for.
    chosen = any("GC" in os.environ.get(name, "") for name in JVM_OPTIONS)
    return "" if chosen else "-XX:+UseParallelGC -XX:GCTimeRatio=14"


def _is_local(master: str) -> bool:
    """True if there are no executors but in the driver's own process."""
    return master.partition("[")[0] == "local"


def _cores(master: str) -> int:
    if master.startswith("local"):
        threads = master.removeprefix("local").strip("[]").split(",")[0]
        return int(threads) if threads.isdigit() else (os.cpu_count() or 1 if threads == "*" else 1)
    return max(2, os.cpu_count() or 2)


class _RememberedClass(JavaClass):
    """A class of the JVM whose static methods are looked up once, and so the one instance that a Scala object is."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        if isinstance(member, JavaMember):
            if name in _SAME_FOR_THE_SAME_TEXT and self._fqn == _FUNCTIONS:
                member = lru_cache(_COLUMNS)(member.__call__)
            self.__dict__[name] = member
        elif name == "MODULE$":
            self.__dict__[name] = member
        return member


class _RememberedPackage(JavaPackage):
    """A package of the JVM whose classes, and packages, are looked up once."""

    def __getattr__(self, name: str) -> Any:
        return _remembered(self, name, super().__getattr__(name))


class _RememberedView(JVMView):
    """The JVM, of which classes and packages are looked up once."""

    def __getattr__(self, name: str) -> Any:
        return _remembered(self, name, super().__getattr__(name))


def _remembered(parent: Any, name: str, member: Any) -> Any:
    """The `member` that the JVM has told of by this name, which `parent` is not asked for again."""
    if isinstance(member, JavaClass):
        member = _RememberedClass(member._fqn, member._gateway_client)
    # A class whose jar is not there yet is told of as a package.
    elif isinstance(member, JavaPackage) and name.islower():
        member = _RememberedPackage(member._fqn, member._gateway_client, member._jvm_id)
    else:
        return member
    parent.__dict__[name] = member
    return member


class _Lists:
    """Hands texts and objects of the JVM over ten at a time; Py4J's own converter adds one element with each call."""

    def __init__(self, java: Any) -> None:
        self._list_of, self._array_list = java.java.util.List.of, java.java.util.ArrayList

    def can_convert(self, value: Any) -> bool:
        """As Py4J asks before each argument of a call."""
        # Java would take one array for many elements.
        return type(value) is list and bool(value) and all(map(self._is_one, value))

    @staticmethod
    def _is_one(value: Any) -> bool:
        return isinstance(value, str | JavaObject) and not isinstance(value, JavaArray)

    def convert(self, values: list[Any], client: Any) -> Any:
        """A Java list of the same elements."""
        parts = [self._list_of(*values[at : at + _OF_ONE_CALL]) for at in range(0, len(values), _OF_ONE_CALL)]
        if len(parts) == 1:
            return parts[0]
        whole = self._array_list()
        for part in parts:
            whole.addAll(part)
        return whole


def _spare_calls(spark: SparkSession) -> None:
    """Spare the JVM what PySpark asks of it for every column of every expression."""
    java: Any = spark.sparkContext._jvm
    if isinstance(java, _RememberedView):
        return
    java.__class__ = _RememberedView
    client = java._gateway_client
    client.converters = [_Lists(java), *client.converters]
