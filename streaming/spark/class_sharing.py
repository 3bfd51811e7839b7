"""A class archive for Spark's JVM: every process that starts one is some five seconds faster (Java's AppCDS).

The archive is made once, by a short run of a real pipeline, and holds the classes that such a run loads. It belongs to
one Java and one Spark; a session without a fitting one starts as it would anyway. From Java 25 on it is an AOT cache,
in which classes are linked, too, and which says which methods are worth compiling (JEP 483, 514 and 515).
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyspark

from streaming.spark.jars import COORDINATES, jars_folder
from streaming.spark.java import java_launcher, released_version
from streaming.spark.sketches import sketches_jar

_FIRST_WITH_CACHE = 25
"""The first Java that makes an AOT cache in one run."""
_CACHE, _ARCHIVE = ".aot", ".jsa"
# Java is not to warn of an archive that does not fit, as it starts without.
_USED = {
    _CACHE: '-XX:AOTCache="{}" -Xlog:aot=off',
    _ARCHIVE: '-XX:SharedArchiveFile="{}" -Xlog:cds=off -Xlog:cds+dynamic=off',
}
_MADE = {_CACHE: '-XX:AOTCacheOutput="{}"', _ARCHIVE: '-XX:ArchiveClassesAtExit="{}"'}


def archive_options(class_path: str = "") -> str:
    """The options of the JVM that make it use the archive; empty where there is none for this Java and Spark.

    `class_path` is what a user has added to that of Tidemark.
    """
    path = archive_path(class_path)
    return "" if path is None or not path.is_file() else _USED[path.suffix].format(path)


def archiving_option(path: Path) -> str:
    """The option with which a JVM writes an archive to `path` as it ends; its suffix is that of `archive_path`."""
    return _MADE[path.suffix].format(path)


def archive_path(class_path: str = "") -> Path | None:
    """The place of the archive of this Java, Spark and class path, made or not; None where there is no Java."""
    java = java_launcher()
    # No process is started to ask which version it is: each start of a session would wait for that.
    if java is None or not Path(java).exists():
        return None
    launcher = Path(java).resolve()
    spark = f"{Path(pyspark.__file__).parent} {pyspark.__version__}"
    # Java uses an archive only with the class path that it was made with.
    identity = f"{launcher} {launcher.stat().st_mtime_ns} {spark} {COORDINATES} {sketches_jar().name} on the class path"
    if class_path:
        identity += f" {class_path}"
    major = released_version(java).partition(".")[0]
    kind = _CACHE if major.isdecimal() and int(major) >= _FIRST_WITH_CACHE else _ARCHIVE
    return jars_folder() / f"classes-{hashlib.sha256(identity.encode()).hexdigest()[:12]}{kind}"
