"""What the image installs is pinned with hashes, as it is declared, and an audit is never good where none was made."""

from __future__ import annotations

import re
import runpy
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).parents[1]
IMAGE = PROJECT / "deploy" / "image"
LOCK = (IMAGE / "requirements.lock").read_text()
ENTRIES = [re.split(r"\s+(?=--)", entry.strip()) for entry in LOCK.replace("\\\n", " ").splitlines() if entry]
PINS = [Requirement(pin) for pin, *_ in ENTRIES]


def locked() -> dict[str, str]:
    return {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in PINS}


def asked() -> list[Requirement]:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    extras = re.search(r"^IN_IMAGE := (.*)$", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    assert extras is not None
    lines = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    lines += [line for extra in extras[1].split() for line in project["project"]["optional-dependencies"][extra]]
    lines += (IMAGE / "requirements.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if not line.startswith("#")]


def test_every_package_of_the_image_has_hashes_and_no_place_to_come_from() -> None:
    assert len(ENTRIES) > 100
    for name, *rest in ENTRIES:
        assert re.fullmatch(r"[a-z0-9-]+(\[[a-z, ]+\])?==\S+", name), name
        hashes = [part for part in rest if part.startswith("--")]
        assert hashes and all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), name
    assert "://" not in LOCK and "--index" not in LOCK


def test_the_hashes_are_of_what_is_declared() -> None:
    pins = locked()
    for requirement in asked():
        if requirement.marker is None or requirement.marker.evaluate():
            version = pins[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), f"{requirement}, and {version} is locked: run make lock"
    constrained = dict(line.split("==") for line in (PROJECT / "constraints.txt").read_text().splitlines())
    for name, version in constrained.items():
        assert pins.get(canonicalize_name(name), version) == version, f"{name}: run make lock"


def test_extras_are_locked_wherever_they_are_asked_for() -> None:
    """Where only the plain package has hashes, pip refuses to install the one with extras."""
    extras = {canonicalize_name(pin.name): pin.extras for pin in PINS}
    for pin in PINS:
        try:
            wanted = [*map(Requirement, metadata.requires(pin.name) or ())]
        except metadata.PackageNotFoundError:
            # Of the image alone.
            continue
        for each in wanted:
            if any(each.marker is None or each.marker.evaluate({"extra": extra}) for extra in (*pin.extras, "")):
                assert each.extras <= extras[canonicalize_name(each.name)], f"{each}, which {pin.name} asks for"
    for each in asked():
        assert each.extras <= extras[canonicalize_name(each.name)], f"{each}: run make lock"


def audited(*dependencies: dict[str, Any]) -> tuple[str, int]:
    verdict = runpy.run_path(str(IMAGE / "audit.py"))["verdict"]
    outcome: tuple[str, int] = verdict({"dependencies": list(dependencies)})
    return outcome


def test_an_audit_is_good_only_where_every_package_was_looked_up() -> None:
    sound = {"name": "a", "version": "1", "vulns": []}
    weak = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["2.1"]}]}
    unasked = {"name": "c", "skip_reason": "not found"}
    assert audited(sound) == ("1 packages, and none has a vulnerability that is known.", 0)
    text, code = audited(sound, weak, unasked)
    assert code == 1 and text.startswith("b 2: CVE-1, mended in 2.1\n") and text.endswith("does not know them: c.")
    assert audited(sound, unasked)[1] == 2
    text, code = audited(unasked)
    assert code == 2 and text.startswith("Nothing was audited: the service knows none of the 1 packages.")
    assert audited()[1] == 2
