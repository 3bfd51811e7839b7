"""Three real Kafka brokers on this machine that hold every partition three times, and the end of one of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka.admin import AdminClient

from platform_assets.demo.feeds import free_ports
from platform_assets.demo.feeds.local_kafka import LocalKafka
from tests.support.kafka import Administered
from tests.support.waiting import until

_NODES = 3
_FOLLOWS_WITHIN = 60.0
_REPLICAS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    # A broker that says nothing for so long is dead, and its partitions get other leaders.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
}


class Cluster(Administered):
    """Three nodes, each a broker and a controller; two of them suffice."""

    def __init__(self, folder: Path) -> None:
        controllers = [f"127.0.0.1:{port}" for port in free_ports(_NODES)]
        self._nodes = {
            number: LocalKafka(folder / str(number), settings=_REPLICAS, controllers=controllers, node=number)
            for number in range(1, _NODES + 1)
        }
        self._killed: set[int] = set()
        self.servers = ",".join(node.servers for node in self._nodes.values())

    def start(self) -> None:
        """All at once, as none answers alone.

        Raises:
            JarError, JavaError, FeedError: as the start of one broker.
        """
        with ThreadPoolExecutor(_NODES) as threads:
            list(threads.map(LocalKafka.start, self._nodes.values()))
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def leader(self, topic: str, partition: int = 0) -> int:
        """The number of the node that takes and gives the rows of the partition; -1 while there is none."""
        return int(self.admin.list_topics(topic, timeout=30).topics[topic].partitions[partition].leader)

    def kill_leader(self, topic: str, partition: int = 0) -> int:
        """The node is gone at once, as in a power cut; returns its number and does not wait for the next leader."""
        number = self.leader(topic, partition)
        self._nodes[number].kill()
        self._killed.add(number)
        return number

    def restore(self) -> None:
        """Start what was killed, and wait until every partition is held by all nodes again."""
        while self._killed:
            self._nodes[self._killed.pop()].start()
        until(self._all_in_sync, "all replicas in sync", _FOLLOWS_WITHIN)

    def stop(self) -> None:
        """End all of them; one that stays alone would wait for the others before it ends by itself."""
        for node in self._nodes.values():
            node.kill()

    def _all_in_sync(self) -> bool:
        topics = self.admin.list_topics(timeout=30).topics.values()
        return all(len(each.isrs) == _NODES for topic in topics for each in topic.partitions.values())
