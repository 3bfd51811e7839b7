"""The image of deploy/, as far as it can be judged without Docker."""

from __future__ import annotations

import hashlib
import json
import tarfile
import tomllib
from fnmatch import fnmatch
from io import BytesIO
from pathlib import Path
from typing import get_args

import pytest

from streaming.service.status import State
from tests.support.deployed import (
    DEPLOY,
    DOCKERFILE,
    FILES,
    KUSTOMIZATION,
    PROJECT,
    SERVICES,
    USER,
    of_image,
)


@pytest.mark.parametrize(
    "image",
    [each["image"] for each in SERVICES.values()]
    + [line.split()[1] for line in DOCKERFILE if line.startswith("FROM")]
    + [f"{each['name']}:{each['newTag']}" for each in KUSTOMIZATION["images"]],
)
def test_an_image_has_a_version_and_names_no_registry(image: str) -> None:
    if image in ("base", "build"):
        return
    name, _, tag = image.partition(":")
    assert tag and not tag.startswith("latest")
    assert name.count("/") < 2 and "." not in name.partition("/")[0]


def test_the_image_is_built_as_an_image_for_production_is() -> None:
    instructions = [line for line in DOCKERFILE if line and not line.startswith("#")]
    text = "\n".join(instructions)
    assert [line for line in instructions if line.startswith("USER")] == [f"USER {USER}:{USER}"]
    assert text.index(f"USER {USER}") < text.index("ENTRYPOINT")
    assert "apt-get upgrade" not in text and "sudo" not in text and "ADD " not in text and "curl" not in text
    for line in instructions:
        if "apt-get install" in line:
            assert "--no-install-recommends" in line and "--yes" in line
            assert "apt-get update" in line and line.endswith("rm -rf /var/lib/apt/lists/*")
        if "pip install" in line:
            assert "--mount=type=cache" in line
            # The project's own dependencies are its user's; all others are held to their hashes.
            assert "--constraint" in line if "/project" in line else "--require-hashes" in line
        if line.startswith(("CMD", "ENTRYPOINT")):
            json.loads(line.split(" ", 1)[1])
    assert text.count("\nENTRYPOINT") == text.count("\nHEALTHCHECK") == 1
    assert "openjdk-17-jre-headless" in text and "FROM python:3.11-" in text


def test_what_the_image_copies_passes_its_ignore_file() -> None:
    allowed = {
        line.removeprefix("!").rstrip("/")
        for line in (DEPLOY / "image" / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {
        source.rstrip("/")
        for line in DOCKERFILE
        if line.startswith("COPY") and "--from" not in line
        for source in [part for part in line.split()[1:-1] if not part.startswith("--")]
    }
    assert copied == allowed and all((PROJECT / source).exists() for source in copied)


def test_what_the_image_adds_to_the_library_is_pinned_and_fits_its_dagster() -> None:
    pinned = dict(
        line.split("==")
        for line in (DEPLOY / "image" / "requirements.txt").read_text().splitlines()
        if not line.startswith("#")
    )
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]
    integrations = next(entry.split("==")[1] for entry in project if entry.startswith("dagster-pyspark=="))
    assert pinned["dagster-postgres"] == pinned["dagster-k8s"] == integrations
    constrained = {line.partition("==")[0].lower() for line in (PROJECT / "constraints.txt").read_text().splitlines()}
    assert not constrained & {*pinned}, "pinned twice: pip would refuse what differs"


def test_a_bare_root_becomes_an_image_that_is_started_as_the_dockerfile_says(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for path in ("etc/tidemark/image.json", "project/acme.py", "proc/1/cmdline"):
        (root / path).parent.mkdir(parents=True)
        (root / path).touch()
    instructions = {"USER": "10001:10001", "WORKDIR": "/project", "ENV": {"HOME": "/tmp"}}
    started = {"ENTRYPOINT": '["/usr/bin/tini", "--"]', "CMD": '["tidemark", "status"]'}
    (root / "etc/tidemark/image.json").write_text(json.dumps(instructions | started))
    of_image("archive").pack(root, "localhost/tidemark-project:1", tmp_path / "image.tar")
    with tarfile.open(tmp_path / "image.tar") as archive:
        files = {member.name: archive.extractfile(member) for member in archive}
        contents = {name: file.read() for name, file in files.items() if file is not None}
    (manifest,) = json.loads(contents["manifest.json"])
    assert manifest["RepoTags"] == ["localhost/tidemark-project:1"]
    config, layer = json.loads(contents[manifest["Config"]]), contents[manifest["Layers"][0]]
    assert config["config"] == {
        "User": "10001:10001",
        "WorkingDir": "/project",
        "Entrypoint": ["/usr/bin/tini", "--"],
        "Cmd": ["tidemark", "status"],
        "Env": ["HOME=/tmp"],
    }
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    with tarfile.open(fileobj=BytesIO(layer)) as packed:
        names = set(packed.getnames())
    assert {"./proc", "./project/acme.py"} <= names and "./proc/1" not in names


def test_an_executor_is_what_spark_says_in_the_environment_of_its_pod() -> None:
    environment = {
        "SPARK_EXECUTOR_MEMORY": "2g",
        "SPARK_JAVA_OPT_0": "-Dspark.driver.port=7078",
        "SPARK_JAVA_OPT_1": "-Dname=two words",
        "SPARK_DRIVER_URL": "spark://driver",
        "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "spark-application-1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "tidemark-exec-3",
    }
    line = of_image("executor").command(environment)
    assert line[:5] == ["java", "-Dspark.driver.port=7078", "-Dname=two words", "-Xms2g", "-Xmx2g"]
    assert dict(zip(line[8::2], line[9::2], strict=True)) == {
        "--driver-url": "spark://driver",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-application-1",
        "--hostname": "10.0.0.1",
        "--resourceProfileId": "0",
        "--podName": "tidemark-exec-3",
    }
    with pytest.raises(KeyError, match="SPARK_DRIVER_URL"):
        of_image("executor").command({name: value for name, value in environment.items() if name != "SPARK_DRIVER_URL"})


def test_a_stream_is_down_where_nothing_will_start_it_by_itself() -> None:
    check = of_image("stream_is_up")
    problems = {}
    for state in get_args(State):
        others = {"pipeline": "visits", "state": "failed", "why": "its own affair"}
        document = {"pipelines": [others, {"pipeline": "orders", "state": state, "why": "the disk is full"}]}
        problems[state] = check.problem(document, "orders")
    assert {state for state, problem in problems.items() if problem} == {"failed", "stopped"}
    assert problems["failed"] == "orders is failed: the disk is full"


def test_the_wheel_has_nothing_of_it_and_the_readmes_name_it() -> None:
    discovery = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]
    assert not any(fnmatch("deploy", pattern) for pattern in discovery["include"])
    assert "| `deploy/` |" in (PROJECT / "README.md").read_text()
    readme = (DEPLOY / "README.md").read_text()
    for folder in sorted({path.parent for path in FILES} - {DEPLOY}):
        assert f"`{folder.relative_to(DEPLOY)}/`" in readme
