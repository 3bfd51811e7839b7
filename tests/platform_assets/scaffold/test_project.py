"""A project of one's own, outside this repository, in an environment that has only the wheel."""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from platform_assets import scaffold
from platform_assets.scaffold import write_project
from streaming.base.errors import DeclarationError
from streaming.spark.jars import jars_folder
from tests.support import guide
from tests.support.commands import Typist, printed, started_typist
from tests.support.kafka import Broker
from tests.support.logical_decoding import Connector
from tests.support.postgres import Server
from tests.support.processes import short_lived

CHECKOUT = Path(__file__).parents[3]
PACKAGES = ("streaming", "quality", "platform_assets", "tidemark")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a shell in which the wheel is installed: what it needs is lent from here, but not this checkout."""
    root = tmp_path_factory.mktemp("installed")
    source, python = root / "source", root / "environment" / "bin" / "python"
    for package in PACKAGES:
        shutil.copytree(CHECKOUT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(CHECKOUT / name, source)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMARK_", "PYTHON", "PYTEST"))}
    # The guide installs what is installed already.
    own |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(root), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    pip = [sys.executable, "-m", "pip", "--quiet"]
    done(root, [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(root), str(source)], own)
    done(root, [sys.executable, "-m", "venv", "--without-pip", str(root / "environment")], own)
    (wheel,) = root.glob("*.whl")
    done(root, [*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)], own)
    (site,) = root.glob("environment/lib/python*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_path("purelib"))
    scripts = entry_points(group="console_scripts")
    for command in (*scripts.select(name="dagster"), *scripts.select(name="dg")):
        # The one that is lent would run in this environment.
        script = python.with_name(command.name)
        script.write_text(f"#!{python}\nfrom {command.module} import {command.attr}\n{command.attr}()\n")
        script.chmod(0o755)
    shutil.rmtree(source)
    return own | {
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "TIDEMARK_JARS": str(jars_folder()),
        "TIDEMARK_MASTER": "local[2]",
        **short_lived(),
        "DAGSTER_HOME": str(tmp_path_factory.mktemp("dagster")),
    }


def done(folder: Path, command: list[str], environment: dict[str, str]) -> str:
    """What a command has printed, its lines as one."""
    return " ".join(printed(folder, command, environment).split())


@pytest.fixture(scope="module")
def typist(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Typist]:
    """Types the commands of the wheel."""
    python = Path(shutil.which("python", path=environment["PATH"]) or "python")
    with started_typist(python, tmp_path_factory.mktemp("typist") / "stderr", environment) as typist:
        yield typist


@pytest.mark.long
@pytest.mark.processes
def test_every_command_of_the_guide_prints_what_the_guide_says(
    environment: dict[str, str], typist: Typist, tmp_path: Path
) -> None:
    guide.follow([page for page in guide.pages() if page not in guide.WITH_SERVICES], tmp_path, environment, typist)


@pytest.mark.long
@pytest.mark.processes
def test_the_guides_story_of_a_database_is_what_happens_with_a_real_one_and_a_real_broker(
    environment: dict[str, str], kafka: Broker, postgres_running: Server, tmp_path: Path
) -> None:
    """Only Debezium is played, by a reader of the server's log; it has read what a command did before the next one."""
    database = postgres_running.database()
    services = tmp_path / "pg_service.conf"
    services.write_text("[shop]\n" + database.replace(" ", "\n"))
    environment = environment | {
        "PATH": f"{environment['PATH']}:{postgres_running.binaries}",
        "PGSERVICEFILE": str(services),
        "PGTZ": "UTC",
        "TIDEMARK_PARAMETER_SHOP_SERVERS": kafka.servers,
    }
    python = Path(shutil.which("python", path=environment["PATH"]) or "python")
    connector = Connector(database, "orders", kafka, "shop.public.orders")
    try:
        with started_typist(python, tmp_path / "stderr", environment) as typist:
            typist.type(tmp_path, "tidemark init acme")
            guide.follow(["database.md"], tmp_path / "acme", environment, typist, connector.forward)
    finally:
        connector.drop()


@pytest.mark.long
@pytest.mark.processes
def test_pieces_that_are_added_to_a_project_run_as_they_were_written(
    environment: dict[str, str], typist: Typist, tmp_path: Path
) -> None:
    def typed(command: str, folder: Path = tmp_path / "acme") -> str:
        return " ".join(typist.type(folder, command).split())

    typed("tidemark init acme", tmp_path)
    assert "Next: tidemark run orders" in typed("tidemark new view orders_again")
    assert "Next: tidemark run orders" in typed("tidemark new view totals --sql")
    assert "Next: tidemark report by_hour" in typed("tidemark new report by_hour")
    assert "Next: tidemark run shops" in typed("tidemark new stream shops")
    assert "Next: tidemark new report NAME --of shops" in typed("tidemark new suite shops")
    landing = tmp_path / "acme" / "lake" / "landing" / "orders"
    landing.mkdir(parents=True)
    shutil.copy(tmp_path / "acme" / "samples" / "1.json", landing)
    typed("tidemark run orders")
    assert "anna 2" in typed("tidemark show orders current --view totals")
    assert "2026-01-05" in typed("tidemark report by_hour")
    assert "All definitions loaded successfully" in done(tmp_path / "acme", ["dg", "check", "defs"], environment)


@pytest.mark.long
@pytest.mark.processes
def test_the_demos_pipelines_are_found_by_the_wheel_alone(environment: dict[str, str], tmp_path: Path) -> None:
    assert "flights: `tidemark up` has never started it here" in done(
        tmp_path, ["tidemark", "status", "flights"], environment
    )


def test_a_project_is_written_into_no_folder_that_has_something_in_it(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(DeclarationError, match=r"is there already and not empty; choose another folder"):
        write_project(tmp_path, "acme")
    with pytest.raises(DeclarationError, match="'my-acme' cannot name a package"):
        write_project(tmp_path / "new", "my-acme")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_is_written_imports_nothing_of_the_platform_but_the_facade(tmp_path: Path) -> None:
    folder = Path(scaffold.__file__).parent
    texts = [path.read_text() for path in folder.rglob("*.template")]
    modules = [module for text in texts for module in re.findall(r"^(?:from|import) (\S+)", text, re.MULTILINE)]
    assert modules.count("tidemark") > 5
    assert {module.split(".")[0] for module in modules} & {*PACKAGES} == {"tidemark"}


def test_nothing_in_a_project_names_the_templates_or_the_repository(tmp_path: Path) -> None:
    written = write_project(tmp_path, "acme")
    assert tmp_path / "acme" / "pipelines" / "orders.py" in written and tmp_path / ".gitignore" in written
    for path in written:
        text = path.read_text()
        assert "$" not in text and "package}" not in text and ".template" not in path.name
