"""How tests are shared out to workers; the fixtures `spark` and `lake` are the package's own (pyproject.toml)."""

from __future__ import annotations

import gc
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.support import durations, seeds, services
from tests.support import examples as examples
from tests.support import postgres as postgres_server
from tests.support.services import starting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.amqp import Qpid
    from tests.support.kafka import Broker
    from tests.support.object_store import Bucket

_MEMORY_OF_A_WORKER = 3 * 2**30
"""Bytes: a worker with its JVM takes up to 2 GB, and the processes that its tests start take the rest."""

_TESTS = Path(__file__).parent
_GOLDEN = re.compile(r"test_[a-z]+\d+_")
"""Names of tests of applications, which always run."""
_PURE = 2


@pytest.fixture(scope="module")
def two_partitions(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, with two shuffle partitions: for laws that hold however keys are shared out."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", before or "1")


def _service(fixture: str, name: str, running: Callable[[Path], AbstractContextManager[Any]]) -> Any:
    """A fixture of a session: what runs in a folder of its own, started by the first test that asks, in one worker."""

    @pytest.fixture(scope="session", name=fixture)
    def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
        with ExitStack() as stack:
            with starting(name):
                there = stack.enter_context(running(tmp_path_factory.mktemp(fixture)))
            yield there

    return service


@contextmanager
def _kafka(folder: Path) -> Iterator[Broker]:
    """A Kafka broker; its jars are fetched once."""
    from tests.support.kafka import Broker

    broker = Broker(folder)
    broker.start()
    yield broker
    broker.stop()


@contextmanager
def _qpid(folder: Path) -> Iterator[Qpid]:
    """A broker of AMQP 0-9-1; its jars are fetched once."""
    from tests.support.amqp import Qpid

    broker = Qpid(folder)
    broker.start()
    yield broker
    broker.end()


def _hive_metastore(folder: Path) -> AbstractContextManager[str]:
    """The address of a Hive metastore."""
    from tests.support.catalog_servers import hive_metastore

    return hive_metastore(folder)


kafka = _service("kafka", "Kafka", _kafka)
qpid = _service("qpid", "Qpid", _qpid)
hive_metastore = _service("hive_metastore", "Hive metastore", _hive_metastore)


@pytest.fixture(scope="session")
def postgres_running() -> Iterator[postgres_server.Server]:
    """A real Postgres, started by the first test that asks for it, in one worker."""
    with postgres_server.server() as server:
        yield server


@pytest.fixture
def postgres(postgres_running: postgres_server.Server) -> str:
    """The connection string of an empty database."""
    return postgres_running.database()


@pytest.fixture(scope="session")
def object_store_running() -> Iterator[str]:
    """The endpoint of a store that speaks S3, started by the first test that asks for it, in one worker."""
    from tests.support.object_store import server

    with server() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(object_store_running: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """An empty bucket, with the credentials of this process in its environment."""
    from tests.support.object_store import credentials, new_bucket

    for name, value in credentials().items():
        monkeypatch.setenv(name, value)
    return new_bucket(object_store_running)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(durations)
    config.pluginmanager.register(services)
    config.pluginmanager.register(seeds)
    # Code of a test runs a few times, and compiling it thoroughly takes longer than what it saves.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without-spark", action="store_true", help="leave out the tests that start a Spark session")
    parser.addoption("--record-durations", action="store_true", help="write tests/durations.json anew")


def pytest_collection_finish() -> None:
    """Leave tests and modules, which stay, out of looks for garbage: each would take most of a second."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """As many workers as there are cores, as far as the memory goes."""
    return max(1, min(os.cpu_count() or 1, psutil.virtual_memory().available // _MEMORY_OF_A_WORKER))


# Before pytest leaves out what `-m` says.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if {"kafka", "hive_metastore", "qpid"} & {*getattr(item, "fixturenames", ())}:
            # Each is a JVM of its own, and those that talk to it wait for it most of their time.
            item.add_marker("processes")
    _leave_out_but_one(items)
    if not config.getoption("--record-durations"):
        _keep_to_time(items)
    if config.getoption("--without-spark"):
        items[:] = [item for item in items if "spark" not in getattr(item, "fixturenames", ())]
    # Without workers, tests run in the order of their files.
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


def _leave_out_but_one(items: list[pytest.Item]) -> None:
    """Of a sampled test, all cases but one are marked `long`; another one is drawn each time."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for test, of_test in cases.items():
        # Tests of a file draw alike, so that their cases share the fixtures of one parameter.
        chosen = int(seeds.draws("sampled", test.partition("::")[0]).random() * len(of_test))
        for case in of_test[:chosen] + of_test[chosen + 1 :]:
            case.add_marker("long")


def _keep_to_time(items: list[pytest.Item]) -> None:
    """Files that take longer than a file may are drawn each time, as often as there is time; others are `long`."""
    files: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[_file(item)].append(item)
    for file, of_file in files.items():
        # Laws are the product, and lints are of all other files.
        always = "/" not in file or file.startswith("laws/")
        # All or none: most of the time goes into what the tests of a file share.
        if not always and seeds.draws("time", file).random() >= durations.share(file):
            slow = [item for item in of_file if _kind(item) < _PURE] or of_file
            for item in slow:
                if not _GOLDEN.match(item.name):
                    item.add_marker("long")


def _file(item: pytest.Item) -> str:
    return item.path.relative_to(_TESTS).as_posix()


def _turn(item: pytest.Item) -> tuple[float, str, int]:
    """Workers begin with the files that take longest, and of these with tests of processes, which mostly wait."""
    file = _file(item)
    return -durations.expected(file), file, _kind(item)


def _kind(item: pytest.Item) -> int:
    """The place of a test in its file: processes come first, then Spark, then what starts neither."""
    return 0 if item.get_closest_marker("processes") else 1 if "spark" in getattr(item, "fixturenames", ()) else _PURE
