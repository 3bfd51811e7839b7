from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streaming.base.errors import JavaError
from streaming.lake.settings import Settings
from streaming.spark import java
from streaming.spark.java import major_version, require_java
from streaming.spark.session import JVM_OPTIONS, spark_conf
from tests.support.javas import java_that_says

MODULE_FILE = Path(java.__file__)
INSTALL_COMMANDS = (
    "sudo apt install openjdk-17-jdk-headless",
    "sudo dnf install java-21-openjdk-devel",
    "brew install openjdk@17",
)


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ("bash: java: command not found", None),
    ],
)
def test_major_version_reads_what_java_prints(text: str, major: int | None) -> None:
    assert major_version(text) == major


def test_the_java_of_this_machine_will_do() -> None:
    assert java.OLDEST_JAVA <= require_java().major <= java.NEWEST_JAVA


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21.0.1", 21), ("25", 25)])
@pytest.mark.parametrize("has_spark_module", [True, False])
def test_java_home_wins_over_the_path(
    version: str, major: int, has_spark_module: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = java_that_says(tmp_path / "jdk", version, has_spark_module=has_spark_module)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert require_java() == java.Java(home / "bin" / "java", major, has_spark_module)


@pytest.mark.parametrize(
    ("version", "has_spark_module", "complaint"),
    [
        ("1.8.0_292", False, "is Java 8"),
        ("11.0.13", True, "is Java 11"),
        ("16.0.2", True, "is Java 16"),
        ("26.0.1", True, "is Java 26"),
        ("unheard of", True, "does not say which version"),
    ],
)
def test_an_unfit_java_is_named_in_one_line_with_the_install_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, has_spark_module: bool, complaint: str
) -> None:
    home = java_that_says(tmp_path / "jdk", version, has_spark_module=has_spark_module)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(JavaError) as raised:
        require_java()
    sentence = str(raised.value)
    assert "\n" not in sentence
    for part in (complaint, str(home), *INSTALL_COMMANDS):
        assert part in sentence


def test_no_java_at_all_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaError, match=r"there is no java on the PATH: install one with .*apt install"):
        require_java()


def test_a_java_home_without_a_launcher_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=f"JAVA_HOME='{tmp_path}' gives none that runs"):
        require_java()


def test_the_check_runs_as_a_script_with_the_standard_library_alone(tmp_path: Path) -> None:
    # -I and -S: neither this environment's packages nor the project are on the path, as before the set-up.
    command = [sys.executable, "-I", "-S", str(MODULE_FILE)]
    fit = subprocess.run(
        command,
        env={"JAVA_HOME": str(java_that_says(tmp_path / "fit", "17.0.1"))},
        capture_output=True,
        text=True,
        check=False,
    )
    unfit = subprocess.run(command, env={"PATH": ""}, capture_output=True, text=True, check=False)
    assert (fit.returncode, fit.stdout, fit.stderr) == (0, "", "")
    assert unfit.returncode == 1
    assert unfit.stderr.startswith("Tidemark needs Java 17 to 25")
    assert unfit.stderr.count("\n") == 1


@pytest.mark.parametrize(("asked", "ours"), [("", True), ("-XX:+UseZGC", False), ("-Xmx1g", True)])
def test_who_chooses_a_garbage_collector_gets_it(asked: str, ours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in JVM_OPTIONS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", asked)
    options = spark_conf(Settings())["spark.driver.extraJavaOptions"]
    assert ("-XX:+UseParallelGC" in options.split()) == ours
