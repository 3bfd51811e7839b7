from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from streaming import Files, Table
from streaming.base.errors import JarError, SettingsError
from streaming.lake.settings import Settings
from streaming.spark.jars import COORDINATES, GROUPS, KAFKA, S3, JarGroup, are_there, jars_of, spark_jars
from streaming.spark.session import spark_conf
from streaming.spark.sketches import sketches_jar

NAMES = [
    "delta-spark_4.2_2.13-4.4.0.jar",
    "delta-storage-4.4.0.jar",
    "hadoop-bare-naked-local-fs-0.1.0.jar",
]


OWN = JarGroup("one", "nothing", (("org.example:own:1.0",),))
POM = (
    b"<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>"
    b"<artifactId>own</artifactId><version>1.0</version></project>"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    chosen = tmp_path / "jars"
    monkeypatch.setenv("TIDEMARK_JARS", str(chosen))
    return chosen


def put_jars(folder: Path, *names: str) -> None:
    folder.mkdir()
    for name in names:
        with zipfile.ZipFile(folder / name, "w") as jar:
            jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")


def without_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point Spark's resolver at an empty folder, as on a machine that reaches no repository."""
    empty = tmp_path / "empty"
    with_settings(
        tmp_path,
        monkeypatch,
        f'<filesystem name="chosen"><artifact pattern="{empty}/[artifact].[ext]"/></filesystem>',
    )


def with_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resolver: str) -> None:
    """Give Spark's resolver one repository, the element `resolver` of Ivy's settings with the name "chosen"."""
    conf = tmp_path / "conf"
    conf.mkdir()
    settings = conf / "ivy.xml"
    settings.write_text(
        f'<ivysettings><settings defaultResolver="chosen"/><resolvers>{resolver}</resolvers></ivysettings>'
    )
    (conf / "spark-defaults.conf").write_text(f"spark.jars.ivySettings {settings}\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf))


@contextmanager
def repository(tmp_path: Path, busy: bool = False) -> Iterator[tuple[str, list[str]]]:
    """A Maven repository with the jar of `OWN`, which it refuses once where it is `busy`.

    Its address, and the names of the files that it was asked for.
    """
    put_jars(tmp_path / "there", "own-1.0.jar")
    bodies = {"own-1.0.jar": (tmp_path / "there" / "own-1.0.jar").read_bytes(), "own-1.0.pom": POM}
    asked: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            asked.append(name)
            if busy and name == "own-1.0.jar" and asked.count(name) == 1:
                self.send_error(503)
            elif name in bodies:
                self.send_response(200)
                self.send_header("Content-Length", str(len(bodies[name])))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(bodies[name])
            else:
                self.send_error(404)

        do_HEAD = do_GET

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", asked
        finally:
            server.shutdown()


def test_the_projects_jars_are_there_in_the_order_of_their_coordinates() -> None:
    paths = spark_jars()
    assert [path.name for path in paths] == NAMES
    assert all(zipfile.is_zipfile(path) for path in paths)


def test_delta_is_on_the_class_path_of_one_machine_and_is_sent_to_the_workers_of_a_cluster() -> None:
    *delta, local_files = map(str, spark_jars())
    here, cluster = (spark_conf(Settings(master=master)) for master in ("local[2]", "spark://127.0.0.1:7077"))
    assert here["spark.driver.extraClassPath"].split(os.pathsep) == [*delta, local_files, str(sketches_jar())]
    # Who has fetched the client of S3 has it in both.
    assert not {*delta} & {*here.get("spark.jars", "").split(",")}
    assert cluster["spark.jars"].split(",")[: len(delta)] == delta
    assert "spark.driver.extraClassPath" not in cluster


@pytest.mark.parametrize(
    ("key", "master", "between"),
    [
        ("spark.driver.extraClassPath", "local[2]", os.pathsep),
        ("spark.jars", "spark://127.0.0.1:7077", ","),
        ("spark.sql.extensions", "local[2]", ","),
    ],
)
@pytest.mark.parametrize("where", ["a variable", "the conf file", "Spark's own defaults"])
def test_what_a_user_adds_to_a_list_of_spark_stands_behind_what_tidemark_needs(
    key: str, master: str, between: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    ours = spark_conf(Settings(master=master))[key]
    conf_file = tmp_path / ("spark-defaults.conf" if where == "Spark's own defaults" else "own.conf")
    if where == "a variable":
        monkeypatch.setenv(f"TIDEMARK_SPARK_{key}", "theirs")
    else:
        conf_file.write_text(f"# Ours\n{key}  theirs\n")
    settings = Settings(master=master, conf_file=conf_file if where == "the conf file" else None)
    assert spark_conf(settings)[key] == f"{ours}{between}theirs"


def test_jars_that_are_there_are_not_resolved_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_jars(folder, *NAMES)
    # Without a Java nothing could be resolved.
    monkeypatch.setenv("JAVA_HOME", str(folder))
    assert spark_jars() == [folder / name for name in NAMES]


@pytest.mark.processes
def test_a_failed_download_names_only_the_absent_coordinate_and_what_to_do(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.spark.jars._ATTEMPTS", 1)
    put_jars(folder, NAMES[0], NAMES[2])
    (folder / NAMES[1]).write_bytes(b"the first half of a download")
    without_maven(tmp_path, monkeypatch)
    with pytest.raises(JarError) as raised:
        spark_jars()
    message = str(raised.value)
    assert COORDINATES[1] in message
    assert COORDINATES[0] not in message
    for part in ("not found", "spark.jars.ivySettings", f"copy {NAMES[1]} by hand into {str(folder)!r}"):
        assert part in message
    assert sorted(path.name for path in folder.iterdir()) == NAMES


@pytest.mark.long
@pytest.mark.processes
def test_a_repository_that_is_busy_for_a_moment_is_asked_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with repository(tmp_path, busy=True) as (address, asked):
        with_settings(tmp_path, monkeypatch, f'<ibiblio name="chosen" m2compatible="true" root="{address}"/>')
        [jar] = jars_of(OWN)
    assert jar.read_bytes() == (tmp_path / "there" / "own-1.0.jar").read_bytes()
    assert asked.count("own-1.0.jar") > 1


@pytest.mark.processes
def test_a_description_without_its_jar_among_mavens_own_files_is_not_in_the_way(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two jars Maven has the description of the first, and the second one, which no repository has."""
    of_maven = tmp_path / "home" / ".m2" / "repository" / "org" / "example"
    for name in ("own", "other"):
        (of_maven / name / "1.0").mkdir(parents=True)
        (of_maven / name / "1.0" / f"{name}-1.0.pom").write_bytes(POM.replace(b">own<", f">{name}<".encode()))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Duser.home={tmp_path / 'home'}")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    with repository(tmp_path) as (address, _):
        (tmp_path / "spark-defaults.conf").write_text(f"spark.jars.repositories {address}\n")
        (of_maven / "other" / "1.0" / "other-1.0.jar").write_bytes((tmp_path / "there" / "own-1.0.jar").read_bytes())
        jars = jars_of(JarGroup("two", "nothing", (*OWN.jars, ("org.example:other:1.0",))))
    assert [jar.name for jar in jars] == ["own-1.0.jar", "other-1.0.jar"]
    assert {jar.read_bytes() for jar in jars} == {(tmp_path / "there" / "own-1.0.jar").read_bytes()}


def test_a_folder_that_cannot_be_made_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    folder = tmp_path / "file" / "jars"
    monkeypatch.setenv("TIDEMARK_JARS", str(folder))
    with pytest.raises(JarError, match=f"in '{folder}' .*set TIDEMARK_JARS"):
        spark_jars()


def test_the_command_that_make_calls_says_an_error_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = subprocess.run(
        [sys.executable, "-c", "from streaming.spark.jars import main; main()"],
        env={"TIDEMARK_JARS": str(tmp_path / "file"), "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "JAVA_HOME" in done.stderr


def test_of_the_coordinates_that_will_do_the_first_one_that_is_there_is_taken(folder: Path) -> None:
    group = JarGroup("one", "nothing", (("a:first:2", "a:first:1"), ("a:second:1",)))
    put_jars(folder, "first-1.jar", "second-1.jar")
    assert jars_of(group) == [folder / "first-1.jar", folder / "second-1.jar"]
    (folder / "second-1.jar").rename(folder / "first-2.jar")
    assert not are_there(group)
    assert are_there(JarGroup("one", "nothing", group.jars[:1]))
    assert jars_of(JarGroup("one", "nothing", group.jars[:1])) == [folder / "first-2.jar"]


@pytest.mark.long
def test_the_environment_replaces_the_coordinates_of_a_group(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_JARS_KAFKA", "org.example:own:1.0, org.example:other:2.0")
    put_jars(folder, "own-1.0.jar", "other-2.0.jar")
    assert jars_of(KAFKA) == [folder / "own-1.0.jar", folder / "other-2.0.jar"]
    monkeypatch.setenv("TIDEMARK_JARS_KAFKA", "kafka-clients")
    with pytest.raises(SettingsError, match=r"TIDEMARK_JARS_KAFKA='kafka-clients' .*write group:artifact:version"):
        jars_of(KAFKA)


def test_what_lies_on_s3_needs_its_client_and_nothing_else_does() -> None:
    assert [source.jars for source in (Files("s3://b/landing"), Files("s3a://b/landing"), Table("s3://b/t"))] == [
        (S3,)
    ] * 3
    assert [source.jars for source in (Files("landing"), Files("/srv/s3/landing"), Table("/srv/t"))] == [()] * 3


def test_every_coordinate_of_every_group_can_be_read() -> None:
    assert all(coordinate.count(":") == 2 for group in GROUPS.values() for jar in group.jars for coordinate in jar)
