"""A project says in its `pyproject.toml` where its lake and its declarations are; the environment wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.base.errors import SettingsError
from streaming.lake.settings import Settings, find_project

TABLE = """
[tool.tidemark]
lake = "data/lake"
pipelines = ["acme.pipelines", "acme.more"]
suites = "acme.suites"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME", "PIPELINES", "SUITES", "REPORTS", "PROJECT"):
        monkeypatch.delenv(f"TIDEMARK_{name}", raising=False)
    (tmp_path / "pyproject.toml").write_text(TABLE)
    below = tmp_path / "acme" / "deep"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    return tmp_path


def test_the_nearest_table_upwards_counts_and_a_relative_lake_lies_beside_it(project: Path) -> None:
    settings = Settings()
    assert settings.lake.root == str(project / "data/lake")
    assert (settings.pipelines, settings.suites) == ("acme.pipelines,acme.more", "acme.suites")
    assert settings.reports == "platform_assets.demo.reports"


def test_the_environment_wins_over_the_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", "s3a://bucket/lake")
    monkeypatch.setenv("TIDEMARK_PIPELINES", "other")
    assert (Settings().lake.root, Settings().pipelines) == ("s3a://bucket/lake", "other")


def test_a_process_in_another_folder_is_told_the_project(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert find_project() is None
    monkeypatch.setenv("TIDEMARK_PROJECT", str(project))
    assert Settings().lake.root == str(project / "data/lake")


def test_a_file_without_the_table_is_passed_over(project: Path) -> None:
    (project / "acme" / "pyproject.toml").write_text('[project]\nname = "acme"\n')
    outer_project = find_project()
    assert outer_project is not None and outer_project.folder == project


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[tool.tidemark]\nhome = '.'", r"has 'home', which is nothing; it may have: lake, pipelines, suites, reports"),
        ("[tool.tidemark]\nlake = ['.']", r"lake = \['\.'\] .* must be a path or URI"),
        ("[tool.tidemark]\nsuites = 7", r"suites = 7 .* must be a list of packages, such as"),
        ("[tool.tidemark", r"cannot be read: .*Correct it"),
    ],
)
def test_what_nobody_understands_is_refused_with_what_may_be_said(project: Path, text: str, reason: str) -> None:
    (project / "pyproject.toml").write_text(text)
    with pytest.raises(SettingsError, match=reason):
        Settings()


def test_a_file_of_settings_of_spark_is_read_as_spark_reads_its_own(tmp_path: Path) -> None:
    own = tmp_path / "own.conf"
    own.write_text("# Ours\nspark.a 1\n\tspark.b=2\nspark.c = x=y z\nspark.d =4\nspark.e\t five six\nspark.f a=b\n")
    told = Settings(conf_file=own)._conf_file()
    assert told == {
        f"spark.{name}": value
        for name, value in zip("abcdef", ["1", "2", "x=y z", "4", "five six", "a=b"], strict=True)
    }
    own.write_text("spark.a =\n")
    with pytest.raises(SettingsError, match="has no value"):
        Settings(conf_file=own)._conf_file()
