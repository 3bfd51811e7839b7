"""A class archive for Spark's JVM: every process that starts one is some five seconds faster (Java's AppCDS).

The archive is made once, by a short run of a real pipeline, and holds the classes that such a run loads. It belongs to
one Java and one Spark; a session without a fitting one starts as it would anyway.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from streaming.jars import COORDINATES, jars_folder
from streaming.java import java_launcher

_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def archive_options() -> str:
    """The options of the JVM that make it use the archive; empty where there is none for this Java and Spark."""
    path = archive_path()
    return "" if path is None or not path.is_file() else f"-XX:SharedArchiveFile={path} {_QUIET}"


def archive_path() -> Path | None:
    """Where the archive of this Java and this Spark lies, if it was made; None where there is no Java."""
    found = java_launcher()
    # No process is started to ask which version it is: each start of a session would wait for that.
    if found is None or not Path(found).exists():
        return None
    launcher = Path(found).resolve()
    spark = f"{Path(pyspark.__file__).parent} {pyspark.__version__}"
    identity = f"{launcher} {launcher.stat().st_mtime_ns} {spark} {COORDINATES}"
    return jars_folder() / f"classes-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.jsa"


def make_archive() -> bool:
    """Make the archive where it is missing; returns whether there is one now.

    A Java that cannot make one is no reason to stop: everything works without.
    """
    path = archive_path()
    if path is None:
        return False
    if path.is_file():
        return True
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".archiving-") as scratch:
        made = Path(scratch) / path.name
        training = {
            "TIDEMARK_HOME": f"{scratch}/lake",
            "TIDEMARK_MASTER": "local[2]",
            "TIDEMARK_SPARK_spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={made}",
        }
        # The JVM writes the archive as its last deed, and holds the pipe open until then.
        subprocess.run(
            [sys.executable, "-m", "streaming.class_archive"],
            env=os.environ | training,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if made.is_file():
            made.replace(path)
    return path.is_file()


def _train() -> None:
    """The way of three rows through the flights pipeline."""
    from streaming.drain import drain
    from streaming.pipelines.flights import pipeline
    from streaming.session import start_session
    from streaming.settings import Settings

    lake = Settings().lake
    landing = Path(lake.landing(pipeline.stream))
    landing.mkdir(parents=True)
    for hour in (10, 12, 14):
        row = f'{{"flight": {hour}, "origin": "JFK", "dest": "SFO", "sched_dep": "2013-01-01T{hour}:00:00Z"}}\n'
        (landing / f"{hour}.json").write_text(row)
    with start_session() as spark:
        drain(spark, lake, pipeline, end_of_input=True)


if __name__ == "__main__":
    _train()
