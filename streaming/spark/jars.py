"""The jars that Spark sessions get by path, in groups: those of every session, and those that a pipeline may need.

They are resolved once, through Spark's own resolver, from pinned Maven coordinates; afterwards a session
starts without a resolution (which costs seconds each time) and works offline. `main`
resolves those of every session now.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from streaming.base import JarError, SettingsError, StreamingError
from streaming.spark.java import require_java
from streaming.tables import s3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("tidemark")

_DELTA = ("io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0")
"""Maven coordinates that suffice to read, write and merge Delta tables; what they need is in Spark."""

_ATTEMPTS = 4
"""Repositories answer now and then that they are busy; the waits between the attempts are 2, 4 and 8 seconds."""

_LOCAL_FILES = "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0"
"""Hadoop's own local file system runs `chmod` and `readlink` as processes, dozens of them a batch."""


@dataclass(frozen=True)
class JarGroup:
    """Jars that are fetched together.

    `jars`: for each jar the Maven coordinates that will do, the best first; the first one that can be had is taken.
    `about` is the middle of a sentence. `with_dependencies`: everything that they need comes with them, but for what
    `without` names as `group:artifact`.
    A variable `TIDEMARK_JARS_<NAME>` replaces the coordinates of a group by its own, separated by commas.
    """

    name: str
    about: str
    jars: tuple[tuple[str, ...], ...]
    with_dependencies: bool = False
    without: tuple[str, ...] = ()

    @property
    def wanted(self) -> tuple[tuple[str, ...], ...]:
        """The coordinates, those of the environment if it has any.

        Raises:
            SettingsError: what the environment has are no coordinates.
        """
        variable = f"TIDEMARK_JARS_{self.name.upper()}"
        given = os.environ.get(variable)
        if given is None:
            return self.jars
        coordinates = [entry.strip() for entry in given.split(",")]
        if not all(entry.count(":") == 2 and all(entry.split(":")) for entry in coordinates):
            raise SettingsError(
                f"{variable}={given!r} are no Maven coordinates; write group:artifact:version, separated by commas."
            )
        return tuple((entry,) for entry in coordinates)

    @property
    def folder(self) -> str:
        """The name of the folder of a group that has its dependencies with it; other versions have another one."""
        return f"{self.name}-{hashlib.sha256(repr(self.wanted).encode()).hexdigest()[:12]}"


CORE = JarGroup("core", "Delta and local files", tuple((coordinate,) for coordinate in (*_DELTA, _LOCAL_FILES)))
"""The jars that every Spark session gets."""

COORDINATES = tuple(coordinate for (coordinate,) in CORE.jars)
"""The coordinates of the jars that every session gets, unless the environment says otherwise."""

KAFKA = JarGroup(
    "kafka",
    "reading Kafka",
    (
        ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",),
        # Delegation tokens need the same version as the connector, which not every repository has.
        (
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        ),
        ("org.apache.kafka:kafka-clients:3.9.2",),
        ("org.apache.commons:commons-pool2:2.13.1",),
    ),
)
"""The jars that Spark needs besides its own to read and write topics."""

BROKER = JarGroup(
    "broker",
    "a Kafka broker on this machine",
    (("org.apache.kafka:kafka_2.13:4.3.1",), ("org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",)),
    with_dependencies=True,
)
"""A whole Kafka broker, for tests; without the second jar it would log nothing."""

S3 = JarGroup(
    "s3",
    "files on S3",
    (
        ("org.apache.hadoop:hadoop-aws:3.5.0",),
        ("software.amazon.awssdk:s3:2.35.4",),
        ("software.amazon.awssdk:s3-transfer-manager:2.35.4",),
        ("software.amazon.awssdk:sts:2.35.4",),
    ),
    with_dependencies=True,
    # Every client of every service of Amazon, 659 MB, of which the three above are what files need.
    without=("software.amazon.awssdk:bundle",),
)
"""Hadoop's client for a lake or a landing folder on S3, of the version of the Hadoop that comes with Spark."""

GROUPS = {group.name: group for group in (CORE, KAFKA, S3, BROKER)}
"""Every group by its name."""


def jars_folder() -> Path:
    """Return the folder that holds the jars: ``TIDEMARK_JARS``, else ``.tidemark/jars`` in the project.

    Where Tidemark runs from an installed package, there is no project, and the user's cache folder is taken.
    """
    chosen = os.environ.get("TIDEMARK_JARS")
    if chosen:
        return Path(chosen).expanduser().resolve()
    project = Path(__file__).resolve().parents[2]
    if (project / "pyproject.toml").is_file():
        return project / ".tidemark" / "jars"
    return Path.home() / ".cache" / "tidemark" / "jars"


def spark_jars() -> list[Path]:
    """Return the paths of every session's jars, in the order of ``COORDINATES``; resolve those that are absent.

    Raises JarError when one cannot be downloaded or kept, JavaError when there is no Java to resolve with.
    """
    return jars_of(CORE)


def jars_of(group: JarGroup, telling: Callable[[str], None] = lambda text: None) -> list[Path]:
    """The paths of a group's jars, in its order; those that are absent are fetched, which `telling` is told before.

    Raises:
        JarError: one cannot be downloaded or kept.
        JavaError: there is no Java to resolve with.
        SettingsError: the coordinates in the environment are none.
    """
    folder = jars_folder()
    if group.with_dependencies:
        return _whole_group(group, folder, telling)
    absent = tuple(coordinates for coordinates in group.wanted if _there(folder, coordinates) is None)
    if absent:
        telling(f"fetching {len(absent)} {'jar' if len(absent) == 1 else 'jars'} for {group.about}, once")
        _fetch(absent, folder)
    return [_there(folder, coordinates) or folder / _file_name(coordinates[0]) for coordinates in group.wanted]


def are_there(group: JarGroup) -> bool:
    """True if nothing of the group would have to be fetched."""
    folder = jars_folder()
    if group.with_dependencies:
        return (folder / group.folder).is_dir()
    return all(_there(folder, coordinates) for coordinates in group.wanted)


def storage_jars(uri: str) -> tuple[JarGroup, ...]:
    """The groups that a session needs to read and write at a path or URI, besides those of every session."""
    return (S3,) if s3.on_s3(uri) else ()


def add_jars(spark: SparkSession, group: JarGroup) -> None:
    """Let a running session use the jars of a group, in queries that this thread starts.

    Raises:
        JarError: one cannot be downloaded or kept.
    """
    added = {uri.rpartition("/")[2] for (uri,) in spark.sql("LIST JARS").collect()}
    for path in jars_of(group, _log.info):
        if path.name not in added:
            spark.sql(f"ADD JAR '{path}'")
    # Spark looks for sources where the thread says, which it is told in the thread that adds a jar only.
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm.java.lang.Thread.currentThread().setContextClassLoader(added_classes(spark))


def add_storage(spark: SparkSession, uri: str) -> None:
    """Let a running session read and write at a path or URI, also where it was started for none such.

    Raises:
        JarError: a jar cannot be downloaded or kept.
        SettingsError: the environment says of the store what cannot be.
    """
    groups = storage_jars(uri)
    if not groups:
        return
    s3.check_endpoint()
    context: Any = spark.sparkContext
    hadoop = context._jsc.hadoopConfiguration()
    settings = {name.removeprefix("spark.hadoop."): value for name, value in s3.hadoop_settings().items()}
    # A landing folder is looked at again and again while a stream runs.
    if all(hadoop.get(name) == value for name, value in settings.items()):
        return
    for group in groups:
        add_jars(spark, group)
    # Behind another loader Java would make the classes once more that were made for this one.
    if hadoop.getClassByNameOrNull(s3.HADOOP_CLIENT) is None:
        hadoop.setClassLoader(added_classes(spark))
    for name, value in settings.items():
        hadoop.set(name, value)


def added_classes(spark: SparkSession) -> Any:
    """The class loader of the jars that were added, and that are added later."""
    return spark._jsparkSession.sharedState().jarClassLoader()


def _there(folder: Path, coordinates: tuple[str, ...]) -> Path | None:
    """The jar of the first of these coordinates that is in the folder."""
    paths = (folder / _file_name(coordinate) for coordinate in coordinates)
    return next((path for path in paths if zipfile.is_zipfile(path)), None)


def _fetch(wanted: tuple[tuple[str, ...], ...], folder: Path) -> None:
    require_java()
    names = [coordinates[0] for coordinates in wanted]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".resolving-") as scratch:
            for coordinates, (jar,) in _resolve(wanted, Path(scratch), folder, with_dependencies=False).items():
                # Ivy puts the group before the name of a jar.
                name = next(name for name in map(_file_name, coordinates) if jar.name.endswith(name))
                partial = Path(scratch, name)
                shutil.copyfile(jar, partial)
                partial.replace(folder / name)
    except OSError as error:
        raise _unkept(names, folder, error) from error


def _whole_group(group: JarGroup, folder: Path, telling: Callable[[str], None]) -> list[Path]:
    """The jars of a group with all that they need, in a folder of their own that is put in place whole."""
    kept = folder / group.folder
    if not kept.is_dir():
        telling(f"fetching the jars for {group.about}, once")
        require_java()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder, prefix=".resolving-") as scratch:
                resolved = _resolve(group.wanted, Path(scratch), kept, with_dependencies=True, without=group.without)
                partial = Path(scratch, "whole")
                partial.mkdir()
                for jar in {path for paths in resolved.values() for path in paths}:
                    shutil.copyfile(jar, partial / jar.name)
                partial.rename(kept)
        except OSError as error:
            # Another process may have put it in place meanwhile.
            if not kept.is_dir():
                raise _unkept([coordinates[0] for coordinates in group.wanted], folder, error) from error
    return sorted(kept.glob("*.jar"))


def _unkept(coordinates: list[str], folder: Path, error: OSError) -> JarError:
    return JarError(
        f"cannot keep the jars {', '.join(coordinates)} in {str(folder)!r} ({error.strerror or error}): "
        "make that folder writable, or set TIDEMARK_JARS to one that is"
    )


def main() -> None:
    """Resolve the jars for the Makefile; on failure print the one-line reason and exit with status 1."""
    try:
        spark_jars()
    except StreamingError as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()


def _resolve(
    wanted: Sequence[tuple[str, ...]],
    scratch: Path,
    folder: Path,
    with_dependencies: bool,
    without: Sequence[str] = (),
) -> dict[tuple[str, ...], list[Path]]:
    """Where Spark's resolver put the jars of each entry; of an entry's coordinates the first one that can be had.

    An entry of which none can be had is tried again, since a repository may be busy for a moment; for it repositories
    alone are then asked. `folder` is where the jars will be kept, for error texts. `without` names
    dependencies, as `group:artifact`, that are left out.

    Raises:
        JarError: none of an entry's coordinates can be had.
    """
    from pyspark.errors import PySparkRuntimeError

    from streaming.spark.launch import launch

    # An Ivy folder of its own: a damaged shared cache cannot get in the way.
    conf = {"spark.jars.ivy": str(scratch / "ivy")}
    with (scratch / "resolver.log").open("w+") as log:
        try:
            gateway = launch(conf, log)
        except PySparkRuntimeError as error:
            log.seek(0)
            last_words = "; ".join(log.read().strip().splitlines()[-3:]) or "it said nothing"
            names = [coordinates[0] for coordinates in wanted]
            raise _jar_error(names, folder, f"its JVM did not start: {last_words}") from error
        try:
            of_user = str(gateway.jvm.java.lang.System.getProperty("user.home"))
            again = Retrying(
                retry=retry_if_exception_type(JarError),
                stop=stop_after_attempt(_ATTEMPTS),
                wait=wait_exponential(multiplier=2),
                # Maven keeps the description of much without the jar below the user's home, where Ivy looks first and
                # not further.
                before_sleep=lambda attempt: _use_folders(gateway, str(scratch), scratch / "ivy-of-repositories"),
                reraise=True,
            )
            resolved = {}
            for coordinates in wanted:
                _use_folders(gateway, of_user, scratch / "ivy")
                resolved[coordinates] = again(_first, gateway, coordinates, folder, with_dependencies, without)
            return resolved
        finally:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait()


def _use_folders(gateway: Any, home: str, ivy: Path) -> None:
    """Let the resolver look below a home, where Maven's own files are, and in a folder of Ivy."""
    system = gateway.jvm.java.lang.System
    system.setProperty("user.home", home)
    system.setProperty("spark.jars.ivy", str(ivy))


def _first(
    gateway: Any, coordinates: tuple[str, ...], folder: Path, with_dependencies: bool, without: Sequence[str]
) -> list[Path]:
    from py4j.protocol import Py4JJavaError

    reasons = []
    for coordinate in coordinates:
        try:
            jars = _jars(gateway, coordinate, with_dependencies, without)
        except Py4JJavaError as error:
            reasons.append(error.java_exception.getMessage())
            continue
        if jars and all(zipfile.is_zipfile(jar) for jar in jars) and (with_dependencies or len(jars) == 1):
            return jars
        reasons.append("what arrived is not a jar")
    raise _jar_error(list(coordinates), folder, "; ".join(reasons))


def _jars(gateway: Any, coordinate: str, with_dependencies: bool, without: Sequence[str]) -> list[Path]:
    excluded = f"&exclude={','.join(without)}" if without else ""
    uri = gateway.jvm.java.net.URI.create(f"ivy://{coordinate}?transitive={str(with_dependencies).lower()}{excluded}")
    files = gateway.jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies(uri)
    return [Path(files.apply(place)) for place in range(files.size())]


def _file_name(coordinate: str) -> str:
    """The file name of the jar of a coordinate."""
    _, artifact, version = coordinate.split(":")
    return f"{artifact}-{version}.jar"


def _jar_error(coordinates: Sequence[str], folder: Path, reason: str) -> JarError:
    """The error for jars that cannot be had."""
    names = " and ".join(map(_file_name, coordinates))
    return JarError(
        f"Spark could not download {' and '.join(coordinates)} ({reason}): check that this machine reaches a "
        "Maven repository (spark.jars.ivySettings or spark.jars.repositories in the spark-defaults.conf of "
        f"SPARK_CONF_DIR name another one) and run it again, or copy {names} by hand into {str(folder)!r}"
    )
