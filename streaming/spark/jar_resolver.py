"""Jars from Maven coordinates, through Spark's own resolver; a JVM without a SparkContext does the work."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streaming.base import JarError


def resolve(
    wanted: Sequence[tuple[str, ...]],
    scratch: Path,
    folder: Path,
    with_dependencies: bool,
    without: Sequence[str] = (),
) -> dict[tuple[str, ...], list[Path]]:
    """Where Spark's resolver put the jars of each entry; of an entry's coordinates the first one that can be had.

    `folder` is where the jars will be kept, for error texts. `without` names dependencies, as `group:artifact`, that
    are left out.

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
            raise jar_error(names, folder, f"its JVM did not start: {last_words}") from error
        try:
            return {
                coordinates: _first(gateway, coordinates, folder, with_dependencies, without) for coordinates in wanted
            }
        finally:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait()


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
    raise jar_error(list(coordinates), folder, "; ".join(reasons))


def _jars(gateway: Any, coordinate: str, with_dependencies: bool, without: Sequence[str]) -> list[Path]:
    excluded = f"&exclude={','.join(without)}" if without else ""
    uri = gateway.jvm.java.net.URI.create(f"ivy://{coordinate}?transitive={str(with_dependencies).lower()}{excluded}")
    files = gateway.jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies(uri)
    return [Path(files.apply(place)) for place in range(files.size())]


def file_name(coordinate: str) -> str:
    """The file name of the jar of a coordinate."""
    _, artifact, version = coordinate.split(":")
    return f"{artifact}-{version}.jar"


def jar_error(coordinates: Sequence[str], folder: Path, reason: str) -> JarError:
    """The error for jars that cannot be had."""
    names = " and ".join(map(file_name, coordinates))
    return JarError(
        f"Spark could not download {' and '.join(coordinates)} ({reason}): check that this machine reaches a "
        "Maven repository (spark.jars.ivySettings or spark.jars.repositories in the spark-defaults.conf of "
        f"SPARK_CONF_DIR name another one) and run it again, or copy {names} by hand into {str(folder)!r}"
    )
