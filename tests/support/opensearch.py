"""A real OpenSearch on this machine, of one node, from jars alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from platform_assets.demo.feeds import free_ports
from streaming.spark.jars import JarGroup, jars_of
from streaming.spark.java import java_launcher
from tests.support.waiting import until

VERSION = "2.19.6"
"""The newest that runs on Java 17."""

OPENSEARCH = JarGroup(
    "opensearch",
    "an OpenSearch on this machine",
    (
        (f"org.opensearch:opensearch:{VERSION}",),
        (f"org.opensearch:opensearch-plugin-classloader:{VERSION}",),
        (f"org.opensearch.plugin:transport-netty4-client:{VERSION}",),
        ("org.apache.logging.log4j:log4j-core:2.25.4",),
    ),
    with_dependencies=True,
)
_OF_MODULE = ("netty-", "transport-netty4")
_STARTS_WITHIN = 120.0
_PLUGIN = f"""name=transport-netty4
description=HTTP and transport by Netty
version={VERSION}
opensearch.version={VERSION}
java.version=11
classname=org.opensearch.transport.Netty4Plugin
"""
_POLICY = """grant {
  permission java.io.FilePermission "/proc/sys/net/core/somaxconn", "read";
  permission java.net.SocketPermission "*", "accept,connect";
  permission java.lang.RuntimePermission "*", "setContextClassLoader";
  permission java.lang.RuntimePermission "getClassLoader";
  permission java.util.PropertyPermission "sun.nio.ch.bugLevel", "write";
};
"""
_LOGGING = """status=error
rootLogger.level=WARN
rootLogger.appenderRef.s.ref=S
appender.s.type=Console
appender.s.name=S
appender.s.layout.type=PatternLayout
appender.s.layout.pattern=[%d] %p %m (%c)%n
"""


@contextmanager
def opensearch(home: Path) -> Iterator[str]:
    """The URL of a server whose data lie in `home`.

    Raises:
        JarError, JavaError: its jars or a Java are not to be had.
        RuntimeError: it does not start.
    """
    port, transport = free_ports(2)
    for folder in ("config", "lib", "modules/transport-netty4", "plugins", "logs", "tmp"):
        (home / folder).mkdir(parents=True)
    for jar in jars_of(OPENSEARCH):
        # The resolver puts the group first, and permissions are by names without it.
        name = jar.name.partition("_")[2]
        shutil.copy(jar, home / ("modules/transport-netty4" if name.startswith(_OF_MODULE) else "lib") / name)
    (home / "modules/transport-netty4/plugin-descriptor.properties").write_text(_PLUGIN)
    (home / "modules/transport-netty4/plugin-security.policy").write_text(_POLICY)
    (home / "config/log4j2.properties").write_text(_LOGGING)
    (home / "config/opensearch.yml").write_text(
        f"discovery.type: single-node\nnetwork.host: 127.0.0.1\nhttp.port: {port}\ntransport.port: {transport}\n"
        "cluster.routing.allocation.disk.threshold_enabled: false\nhttp.max_content_length: 1mb\n"
    )
    command = [
        *(java_launcher() or "java", "-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        # Without native calls, by which it would find, and refuse, that it runs as root.
        *(
            "-Djna.noclasspath=true",
            "-Djna.nosys=true",
            "-Djava.security.manager=allow",
            f"-Djava.io.tmpdir={home}/tmp",
        ),
        *("-Dlog4j2.disable.jmx=true", f"-Dopensearch.path.home={home}", f"-Dopensearch.path.conf={home}/config"),
        *("-cp", f"{home}/lib/*", "org.opensearch.bootstrap.OpenSearch"),
    ]
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}
    output, url = home / "output", f"http://127.0.0.1:{port}"
    with output.open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
    try:
        until(lambda: process.poll() is not None or _answers(url), "up", _STARTS_WITHIN)
        if process.poll() is not None:
            raise RuntimeError(f"OpenSearch has ended; its log ends with:\n{output.read_text()[-2_000:]}")
        yield url
    finally:
        # Nobody goes on with its data, and it takes its time to end by itself.
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/_cluster/health", timeout=5).is_success
    except httpx.HTTPError:
        return False
