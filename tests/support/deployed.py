"""The files of deploy/ as the tests read them, without Docker, a cluster or systemd."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

PROJECT = Path(__file__).resolve().parents[2]
DEPLOY = PROJECT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


USER = 10001
KUSTOMIZATION = load(KUBERNETES / "kustomization.yaml")
COMPOSE = load(DEPLOY / "compose" / "compose.yaml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
MANIFESTS = sorted({*KUBERNETES.glob("*.yaml")} - {KUBERNETES / "kustomization.yaml"})
OBJECTS = [document for path in MANIFESTS for document in yaml.safe_load_all(path.read_text())]
DEPLOYMENTS = {each["metadata"]["name"]: each["spec"] for each in OBJECTS if each["kind"] == "Deployment"}
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
DOCKERFILE = re.sub(r"\\\n\s*", "", (DEPLOY / "image" / "Dockerfile").read_text()).splitlines()
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def unit(path: Path) -> list[tuple[str, str, str]]:
    """The lines of a unit as section, key and value; a key may be there more than once."""
    lines, section = [], ""
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            lines.append((section, key, value))
    return lines


def service(path: Path) -> dict[str, str]:
    return {key: value for section, key, value in unit(path) if section == "Service"}


def container(spec: dict[str, Any]) -> dict[str, Any]:
    (only,) = spec["template"]["spec"]["containers"]
    return only


def probes(of: dict[str, Any]) -> dict[str, Any]:
    return {name: probe for name, probe in of.items() if name.endswith("Probe")}


def environment_file() -> Iterator[tuple[str, str]]:
    for line in (DEPLOY / "systemd" / "settings.env").read_text().splitlines():
        if not line.startswith("#"):
            name, _, value = line.partition("=")
            yield name, value


def of_image(name: str) -> ModuleType:
    """A script of the image as a module."""
    spec = spec_from_file_location(name, DEPLOY / "image" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
