"""The jars that every Spark session gets by path: two of Delta, and a local file system that forks no processes.

They are resolved once, through Spark's own resolver, from pinned Maven coordinates; afterwards a session
starts without a resolution (which costs seconds each time) and works offline. `main`
resolves them now.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from streaming.base import JarError, StreamingError
from streaming.spark.java import require_java

DELTA = ("io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0")
"""Maven coordinates that suffice to read, write and merge Delta tables; what they need is in Spark."""

LOCAL_FILES = "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0"
"""Hadoop's own local file system runs `chmod` and `readlink` as processes, dozens of them a batch."""

COORDINATES = (*DELTA, LOCAL_FILES)


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
    """Return the paths of the jars, in the order of ``COORDINATES``; resolve those that are absent.

    Raises JarError when one cannot be downloaded or kept, JavaError when there is no Java to resolve with.
    """
    folder = jars_folder()
    paths = [folder / _file_name(coordinate) for coordinate in COORDINATES]
    absent = [c for c, path in zip(COORDINATES, paths, strict=True) if not zipfile.is_zipfile(path)]
    if absent:
        require_java()
        _fetch(absent, folder)
    return paths


def _file_name(coordinate: str) -> str:
    _, artifact, version = coordinate.split(":")
    return f"{artifact}-{version}.jar"


def _fetch(coordinates: list[str], folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".resolving-") as scratch:
            for coordinate, jar in _resolve(coordinates, Path(scratch)).items():
                partial = Path(scratch, _file_name(coordinate))
                shutil.copyfile(jar, partial)
                partial.replace(folder / partial.name)
    except OSError as error:
        raise JarError(
            f"cannot keep the jars {', '.join(coordinates)} in {str(folder)!r} ({error.strerror or error}): "
            "make that folder writable, or set TIDEMARK_JARS to one that is"
        ) from error


def _resolve(coordinates: list[str], scratch: Path) -> dict[str, Path]:
    """Return where Spark's resolver put each coordinate; a JVM without a SparkContext does the work."""
    from py4j.protocol import Py4JJavaError
    from pyspark.conf import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    # An Ivy folder of its own: a damaged shared cache cannot get in the way.
    conf = SparkConf(loadDefaults=False).set("spark.jars.ivy", str(scratch / "ivy"))
    with (scratch / "resolver.log").open("w+") as log:
        try:
            gateway = launch_gateway(conf, popen_kwargs={"stdout": log, "stderr": log})
        except PySparkRuntimeError as error:
            log.seek(0)
            last_words = "; ".join(log.read().strip().splitlines()[-3:]) or "it said nothing"
            raise _jar_error(coordinates, f"its JVM did not start: {last_words}") from error
        try:
            resolver = gateway.jvm.org.apache.spark.util.DependencyUtils
            jars = {}
            for coordinate in coordinates:
                uri = gateway.jvm.java.net.URI.create(f"ivy://{coordinate}?transitive=false")
                try:
                    files = resolver.resolveMavenDependencies(uri)
                except Py4JJavaError as error:
                    raise _jar_error([coordinate], error.java_exception.getMessage()) from error
                if files.size() != 1 or not zipfile.is_zipfile(files.head()):
                    raise _jar_error([coordinate], "what arrived is not a jar")
                jars[coordinate] = Path(files.head())
            return jars
        finally:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait()


def _jar_error(coordinates: list[str], reason: str) -> JarError:
    names = " and ".join(_file_name(coordinate) for coordinate in coordinates)
    return JarError(
        f"Spark could not download {' and '.join(coordinates)} ({reason}): check that this machine reaches a "
        "Maven repository (spark.jars.ivySettings or spark.jars.repositories in the spark-defaults.conf of "
        f"SPARK_CONF_DIR name another one) and run it again, or copy {names} by hand into "
        f"{str(jars_folder())!r}"
    )


def main() -> None:
    """Resolve the jars for the Makefile; on failure print the one-line reason and exit with status 1."""
    try:
        spark_jars()
    except StreamingError as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
