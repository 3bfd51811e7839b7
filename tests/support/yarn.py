"""A YARN cluster on this machine, from jars alone: a ResourceManager and a NodeManager, each a process."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from xml.sax.saxutils import escape

import pyspark

from platform_assets.demo.feeds import free_ports
from streaming.spark import JarGroup, jars_of, java

HADOOP = JarGroup(
    "yarn",
    "a YARN cluster on this machine",
    (
        ("org.apache.hadoop:hadoop-client-minicluster:3.5.0",),
        ("org.bouncycastle:bcprov-jdk18on:1.78.1",),
        ("org.bouncycastle:bcpkix-jdk18on:1.78.1",),
        ("org.bouncycastle:bcutil-jdk18on:1.78.1",),
    ),
)
"""The servers of the Hadoop whose clients come with Spark, and what they want for the certificates of applications."""

_STARTS_WITHIN, _ENDS_WITHIN = 90.0, 20.0
_HOST = "127.0.0.1"
_SERVERS = "org.apache.hadoop.yarn.server"
_QUEUES = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.root.default.state": "RUNNING",
    # An application's own master may take all of it: without this one, a tenth.
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1",
}
_LOGGING = """
rootLogger.level=WARN
rootLogger.appenderRef.s.ref=S
appender.s.type=Console
appender.s.name=S
appender.s.layout.type=PatternLayout
appender.s.layout.pattern=[%d] %p %m (%c)%n
"""


class Yarn:
    """One machine with two processors of a YARN cluster.

    Raises:
        JarError, JavaError: its jars or a Java are not to be had.
        RuntimeError: it does not start, with what it said.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._web, *self._ports = free_ports(5)

    @property
    def environment(self) -> dict[str, str]:
        """What a driver has in its environment to run on this cluster."""
        return {
            "TIDEMARK_MASTER": "yarn",
            "HADOOP_CONF_DIR": str(self._configuration),
            "TIDEMARK_SPARK_DRIVER_HOST": _HOST,
            "TIDEMARK_SPARK_EXECUTOR_INSTANCES": "1",
            # Every start would copy Spark's own jars, which are 460 MB.
            "TIDEMARK_SPARK_YARN_JARS": f"local:{self._spark}/jars/*",
            "TIDEMARK_SPARK_spark.yarn.stagingDir": (self._folder / "staging").as_uri(),
        }

    def __enter__(self) -> Yarn:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    def _start(self) -> None:
        # The servers show pages from there, and do not start without; nobody looks at them.
        for pages in ("cluster", "node"):
            (self._folder / "pages" / "webapps" / pages).mkdir(parents=True)
        self._configure()
        for name in ("resourcemanager.ResourceManager", "nodemanager.NodeManager"):
            self._processes.append(self._begin(name))
        deadline = time.monotonic() + _STARTS_WITHIN
        while not self._is_ready():
            ended = [process for process in self._processes if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                logs = "\n".join(log.read_text()[-3000:] for log in sorted(self._folder.glob("*.log")))
                raise RuntimeError(f"the YARN cluster does not start:\n{logs}")
            time.sleep(0.1)

    def _end(self) -> None:
        for process in reversed(self._processes):
            # Containers are processes of the NodeManager, which ends them with itself.
            process.terminate()
            try:
                process.wait(_ENDS_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _is_ready(self) -> bool:
        with suppress(OSError, ValueError):
            page = f"http://{_HOST}:{self._web}/ws/v1/cluster/metrics"
            with urllib.request.urlopen(page, timeout=5) as answer:
                return bool(json.load(answer)["clusterMetrics"]["activeNodes"])
        return False

    def _configure(self) -> None:
        manager, scheduler, tracker, admin = self._ports
        local = dict.fromkeys(("address", "localizer.address", "webapp.address"), f"{_HOST}:0")
        settings = {
            "yarn.resourcemanager.hostname": _HOST,
            "yarn.resourcemanager.address": f"{_HOST}:{manager}",
            "yarn.resourcemanager.scheduler.address": f"{_HOST}:{scheduler}",
            "yarn.resourcemanager.resource-tracker.address": f"{_HOST}:{tracker}",
            "yarn.resourcemanager.admin.address": f"{_HOST}:{admin}",
            "yarn.resourcemanager.webapp.address": f"{_HOST}:{self._web}",
            "yarn.nodemanager.hostname": _HOST,
            **{f"yarn.nodemanager.{name}": address for name, address in local.items()},
            "yarn.nodemanager.local-dirs": str(self._folder / "local"),
            "yarn.nodemanager.log-dirs": str(self._folder / "logs"),
            "yarn.nodemanager.resource.memory-mb": "4096",
            "yarn.nodemanager.resource.cpu-vcores": "2",
            "yarn.scheduler.minimum-allocation-mb": "256",
            # A disk nine tenths full is taken out of service.
            "yarn.nodemanager.disk-health-checker.enable": "false",
            # Virtual memory says nothing of Java, which reserves without using.
            "yarn.nodemanager.vmem-check-enabled": "false",
        }
        self._configuration.mkdir()
        for file, values in {"yarn-site": settings, "capacity-scheduler": _QUEUES}.items():
            (self._configuration / f"{file}.xml").write_text(_xml(values))
        (self._configuration / "log4j2.properties").write_text(_LOGGING)

    def _begin(self, name: str) -> subprocess.Popen[bytes]:
        launcher = java.require_java().launcher
        classes = [self._configuration, self._folder / "pages", *jars_of(HADOOP), f"{self._spark}/jars/*"]
        opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "net", "util")]
        command = [str(launcher), "-Xmx384m", "-XX:+UseSerialGC", *opened, "-cp", ":".join(map(str, classes))]
        with (self._folder / f"{name.partition('.')[0]}.log").open("wb") as log:
            return subprocess.Popen(
                [*command, f"{_SERVERS}.{name}"],
                env=os.environ | {"JAVA_HOME": str(launcher.resolve().parents[1])},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def _configuration(self) -> Path:
        return self._folder / "conf"

    @property
    def _spark(self) -> Path:
        return Path(pyspark.__file__).parent


def _xml(values: Mapping[str, str]) -> str:
    properties = (
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in values.items()
    )
    return f"<configuration>{''.join(properties)}</configuration>\n"
