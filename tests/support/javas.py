"""Launchers that look like those of some version of Java."""

from __future__ import annotations

from pathlib import Path


def java_that_says(folder: Path, version: str, *, has_spark_module: bool = True) -> Path:
    """Make a JAVA_HOME whose launcher and whose file `release` tell this version, and return it."""
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    refuse = "" if has_spark_module else 'case "$1" in --add-modules) exit 1;; esac\n'
    launcher.write_text(f"#!/bin/sh\n{refuse}echo 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    launcher.chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="Nobody"\nJAVA_VERSION="{version}"\n')
    return folder
