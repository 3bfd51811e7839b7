"""A class archive for Spark's JVM: every process that starts one is some five seconds faster (Java's AppCDS).

The archive is made once, by a short run of a real pipeline, and holds the classes that such a run loads. It belongs to
one Java and one Spark; a session without a fitting one starts as it would anyway.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyspark

from streaming.spark.jars import COORDINATES, jars_folder
from streaming.spark.java import java_launcher
from streaming.spark.sketches import sketches_jar

_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def archive_options(class_path: str = "") -> str:
    """The options of the JVM that make it use the archive; empty where there is none for this Java and Spark.

    `class_path` is what a user has added to that of Tidemark.
    """
    path = archive_path(class_path)
    return "" if path is None or not path.is_file() else f"-XX:SharedArchiveFile={path} {_QUIET}"


def archive_path(class_path: str = "") -> Path | None:
    """Where the archive of this Java, this Spark and this class path lies, if it was made; None where no Java is."""
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
    return jars_folder() / f"classes-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.jsa"
