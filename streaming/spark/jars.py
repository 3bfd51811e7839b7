"""The jars that Spark sessions get by path, in groups: those of every session, and those that a pipeline may need.

They are resolved once, through Spark's own resolver, from pinned Maven coordinates; afterwards a session
starts without a resolution (which costs seconds each time) and works offline. `main`
resolves those of every session now.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from streaming.base import JarError, StreamingError
from streaming.spark.jar_groups import CORE, S3, JarGroup
from streaming.spark.jar_resolver import file_name, resolve
from streaming.spark.java import require_java
from streaming.tables import s3

_log = logging.getLogger("tidemark")

COORDINATES = tuple(coordinate for (coordinate,) in CORE.jars)
"""The coordinates of the jars that every session gets, unless the environment says otherwise."""


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
    return [_there(folder, coordinates) or folder / file_name(coordinates[0]) for coordinates in group.wanted]


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
    jvm.java.lang.Thread.currentThread().setContextClassLoader(_loader(spark))


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
    hadoop.setClassLoader(_loader(spark))
    for name, value in settings.items():
        hadoop.set(name, value)


def _loader(spark: SparkSession) -> Any:
    """The class loader of the jars that were added."""
    return spark._jsparkSession.sharedState().jarClassLoader()


def _there(folder: Path, coordinates: tuple[str, ...]) -> Path | None:
    """The jar of the first of these coordinates that is in the folder."""
    paths = (folder / file_name(coordinate) for coordinate in coordinates)
    return next((path for path in paths if zipfile.is_zipfile(path)), None)


def _fetch(wanted: tuple[tuple[str, ...], ...], folder: Path) -> None:
    require_java()
    names = [coordinates[0] for coordinates in wanted]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".resolving-") as scratch:
            for coordinates, (jar,) in resolve(wanted, Path(scratch), folder, with_dependencies=False).items():
                # Ivy puts the group before the name of a jar.
                name = next(name for name in map(file_name, coordinates) if jar.name.endswith(name))
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
                resolved = resolve(group.wanted, Path(scratch), kept, with_dependencies=True, without=group.without)
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
