"""The name and the version under which Tidemark is installed are said once, and everything else follows them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import tidemark
from platform_assets.scaffold import write_project
from streaming.base import DISTRIBUTION, RELEASE

PROJECT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text())
_INSTALLS = re.compile(r"\bpip[\"', ]+install\b.*?(?<![\w./-])(tidemark[\w-]*)(?=[\s'\"\[]|$)", re.MULTILINE)
"""What a line installs where its name begins as ours does."""


def test_the_wheel_is_built_under_the_name_and_the_version_that_the_code_says() -> None:
    assert PYPROJECT["project"]["name"] == DISTRIBUTION
    attribute = PYPROJECT["tool"]["setuptools"]["dynamic"]["version"]["attr"]
    assert attribute == "streaming.base.release.RELEASE" and re.fullmatch(r"\d+\.\d+\.\d+", RELEASE)
    assert tidemark.__version__ == RELEASE


def test_each_python_that_is_taken_is_said_in_classifiers_and_a_project_takes_as_many(tmp_path: Path) -> None:
    write_project(tmp_path / "acme", "acme")
    taken = PYPROJECT["project"]["requires-python"]
    lowest, above = (int(minor) for minor in re.fullmatch(r">=3\.(\d+),<3\.(\d+)", taken).groups())  # type: ignore[union-attr]
    said = [each for each in PYPROJECT["project"]["classifiers"] if each.startswith("Programming Language :: Python")]
    assert said == [f"Programming Language :: Python :: 3.{minor}" for minor in range(lowest, above)]
    project = tomllib.loads((tmp_path / "acme" / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == taken


def test_the_changelog_has_a_section_of_this_version() -> None:
    assert f"\n## [{RELEASE}]" in (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "deploy/README.md"])
def test_a_page_installs_the_name_that_is_ours(page: str) -> None:
    assert {*_INSTALLS.findall((PROJECT / page).read_text(encoding="utf-8"))} <= {DISTRIBUTION}


def test_a_line_that_installs_another_program_is_found() -> None:
    lines = "pip install tidemark && tidemark init\npip install -U 'tidemark[kafka]'\npip install /srv/tidemark"
    assert _INSTALLS.findall(lines) == ["tidemark", "tidemark"]


def test_a_project_of_ones_own_depends_on_the_name_that_is_ours(tmp_path: Path) -> None:
    write_project(tmp_path / "acme", "acme")
    project = tomllib.loads((tmp_path / "acme" / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == [DISTRIBUTION]
