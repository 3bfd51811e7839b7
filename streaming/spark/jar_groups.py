"""The groups of jars: what every session has, what only some pipelines need, and what a test broker is made of."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

from streaming.base import SettingsError

DELTA = ("io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0")
"""Maven coordinates that suffice to read, write and merge Delta tables; what they need is in Spark."""

LOCAL_FILES = "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0"
"""Hadoop's own local file system runs `chmod` and `readlink` as processes, dozens of them a batch."""


@dataclass(frozen=True)
class JarGroup:
    """Jars that are fetched together.

    `jars`: for each jar the Maven coordinates that will do, the best first; the first one that can be had is taken.
    `about` is the middle of a sentence. `with_dependencies`: everything that they need comes with them, but for what
    `without` names as `group:artifact`.
    A variable `TIDEMARK_JARS_<NAME>` replaces the coordinates of a group by its own, separated by commas.
    """

    name: str
    about: str
    jars: tuple[tuple[str, ...], ...]
    with_dependencies: bool = False
    without: tuple[str, ...] = ()

    @property
    def wanted(self) -> tuple[tuple[str, ...], ...]:
        """The coordinates, those of the environment if it has any.

        Raises:
            SettingsError: what the environment has are no coordinates.
        """
        variable = f"TIDEMARK_JARS_{self.name.upper()}"
        given = os.environ.get(variable)
        if given is None:
            return self.jars
        coordinates = [entry.strip() for entry in given.split(",")]
        if not all(entry.count(":") == 2 and all(entry.split(":")) for entry in coordinates):
            raise SettingsError(
                f"{variable}={given!r} are no Maven coordinates; write group:artifact:version, separated by commas."
            )
        return tuple((entry,) for entry in coordinates)

    @property
    def folder(self) -> str:
        """The name of the folder of a group that has its dependencies with it; other versions have another one."""
        return f"{self.name}-{hashlib.sha256(repr(self.wanted).encode()).hexdigest()[:12]}"


CORE = JarGroup("core", "Delta and local files", tuple((coordinate,) for coordinate in (*DELTA, LOCAL_FILES)))
"""The jars that every Spark session gets."""

KAFKA = JarGroup(
    "kafka",
    "reading Kafka",
    (
        ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",),
        # Delegation tokens need the same version as the connector, which not every repository has.
        (
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        ),
        ("org.apache.kafka:kafka-clients:3.9.2",),
        ("org.apache.commons:commons-pool2:2.13.1",),
    ),
)
"""The jars that Spark needs besides its own to read and write topics."""

BROKER = JarGroup(
    "broker",
    "a Kafka broker on this machine",
    (("org.apache.kafka:kafka_2.13:4.3.1",), ("org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",)),
    with_dependencies=True,
)
"""A whole Kafka broker, for tests; without the second jar it would log nothing."""

S3 = JarGroup(
    "s3",
    "files on S3",
    (
        ("org.apache.hadoop:hadoop-aws:3.5.0",),
        ("software.amazon.awssdk:s3:2.35.4",),
        ("software.amazon.awssdk:s3-transfer-manager:2.35.4",),
        ("software.amazon.awssdk:sts:2.35.4",),
    ),
    with_dependencies=True,
    # Every client of every service of Amazon, 659 MB, of which the three above are what files need.
    without=("software.amazon.awssdk:bundle",),
)
"""Hadoop's client for a lake or a landing folder on S3, of the version of the Hadoop that comes with Spark."""

GROUPS = {group.name: group for group in (CORE, KAFKA, S3, BROKER)}
"""Every group by its name."""
