"""Starts the JVM of a session as Spark's scripts do, which first start a Java to put its command together.

So Java may lack the module `jdk.incubator.vector`: the scripts ask for it, but without it only Spark's linear algebra
is slower. What the scripts know and this does not is left to them: clusters, and what `spark-env.sh` and the like say.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import pyspark
from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from streaming.base import JavaError
from streaming.spark.java import Java, require_java
from streaming.spark.user_lists import CLASS_PATH, conf_folder, spark_defaults

_HOME = Path(pyspark.__file__).resolve().parent
_FOR_SCRIPTS = ("PYSPARK_SUBMIT_ARGS", "SPARK_PREPEND_CLASSES", "SPARK_TESTING", "SPARK_SQL_TESTING")
"""Variables that change what Spark's scripts start."""
_SETTINGS_FOR_SCRIPTS = ("spark.driver.extraLibraryPath", "spark.driver.defaultExtraClassPath")
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
"""Packages of java.base that Spark looks into (its class `JavaModuleOptions`)."""
_SAFE = (
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
_LOOKS_EVERY = 0.02
_ONE_AT_A_TIME = threading.Lock()
"""PySpark is told by the environment of the process where its JVM listens, which all threads share."""


def launch(conf: Mapping[str, str], output: IO[str] | None = None) -> Any:
    """A gateway of Py4J to a new JVM, or to the one that the environment names, as it does under `spark-submit`.

    `output` is where a new one prints.

    Raises:
        JavaError: Java is missing or of a wrong version, or only Spark's scripts can start it, and it lacks what they
            ask for.
        PySparkRuntimeError: the JVM ends before it listens.
    """
    with _ONE_AT_A_TIME:
        return _launch(conf, output)


def _launch(conf: Mapping[str, str], output: IO[str] | None) -> Any:
    spark_conf = SparkConf(loadDefaults=False).setAll(list(conf.items()))
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return launch_gateway(spark_conf)
    java = require_java()
    options: dict[str, Any] = {} if output is None else {"stdout": output, "stderr": output}
    if is_for_scripts(conf):
        if not java.has_vectors:
            raise JavaError(
                f"{str(java.launcher)!r} (Java {java.major}) lacks the module jdk.incubator.vector. Only a local "
                "session does without, where no spark-env.sh, java-opts, SPARK_HOME or PYSPARK_SUBMIT_ARGS says how "
                "Spark is started: install a whole JDK, and set JAVA_HOME to its folder."
            )
        return launch_gateway(spark_conf, popen_kwargs=options)
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "told")
        environment = os.environ | {
            "SPARK_HOME": str(_HOME),
            "SPARK_CONNECT_MODE": "0",
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_ENV_LOADED": "1",
            "SPARK_CONF_DIR": str(conf_folder()),
            "PYTHONHASHSEED": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told),
        }
        process = subprocess.Popen(
            command(java, conf),
            # The JVM ends when this end of the pipe is closed.
            stdin=subprocess.PIPE,
            env=environment,
            preexec_fn=_ignore_interrupts,
            **options,
        )
        while not told.is_file():
            if process.poll() is not None:
                raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
            time.sleep(_LOOKS_EVERY)
        with told.open("rb") as info:
            reached = {
                "PYSPARK_GATEWAY_PORT": str(read_int(info)),
                "PYSPARK_GATEWAY_SECRET": UTF8Deserializer().loads(info),
            }
    os.environ.update(reached)
    try:
        gateway = launch_gateway(spark_conf)
    finally:
        for name in reached:
            del os.environ[name]
    gateway.proc = process
    return gateway


def is_for_scripts(conf: Mapping[str, str]) -> bool:
    """True if Spark's own scripts have to start the JVM, because they know more of it than is known here."""
    settings = {**spark_defaults(), **conf}
    return (
        conf.get("spark.master", "local").partition("[")[0] != "local"
        or Path(_find_spark_home()).resolve() != _HOME
        or any(os.environ.get(name) for name in _FOR_SCRIPTS)
        or any(settings.get(name) for name in _SETTINGS_FOR_SCRIPTS)
        or any((conf_folder() / name).exists() for name in ("spark-env.sh", "java-opts"))
        or _is_refused(f"{_options(settings)} {os.environ.get('SPARK_SUBMIT_OPTS', '')}")
    )


def command(java: Java, conf: Mapping[str, str]) -> list[str]:
    """The command line that Spark's scripts would come to for these settings."""
    settings = {**spark_defaults(), **conf}
    first = next((_HOME / "jars").glob("slf4j-api-*.jar"))
    further = (os.environ.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH"))
    classes = [settings.get(CLASS_PATH), str(conf_folder()), str(first), str(_HOME / "jars" / "*"), *further]
    memories = (settings.get("spark.driver.memory"), *map(os.environ.get, ("SPARK_DRIVER_MEMORY", "SPARK_MEM")))
    vector = ["--add-modules=jdk.incubator.vector"] if java.has_vectors else []
    return [
        *(str(java.launcher), "-cp", ":".join(filter(None, classes))),
        *shlex.split(os.environ.get("SPARK_SUBMIT_OPTS", "")),
        f"-Xmx{next(filter(None, memories), '1g')}",
        *shlex.split(_options(settings)),
        *("-XX:+IgnoreUnrecognizedVMOptions", *vector),
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        *_SAFE,
        "org.apache.spark.deploy.SparkSubmit",
        *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
        "pyspark-shell",
    ]


def _ignore_interrupts() -> None:
    # Ctrl-C is for the Python that started it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _options(settings: Mapping[str, str]) -> str:
    names = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
    return " ".join(settings.get(name, "") for name in names)


def _is_refused(options: str) -> bool:
    """True if Spark's scripts say why they do not take these options of the JVM."""
    try:
        return any(option.startswith("-Xmx") for option in shlex.split(options))
    except ValueError:
        return True
