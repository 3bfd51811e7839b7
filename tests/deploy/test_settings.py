"""What is set in deploy/: commands, variables, secrets and bounds, alike wherever a stream runs."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from importlib.metadata import entry_points
from inspect import signature
from pathlib import Path

import pytest
from dagster._cli.api import grpc_command, grpc_health_check_command
from dagster._daemon.cli import liveness_check_command, run_command

from platform_assets.cli.app import COMMANDS
from platform_assets.cli.exit_codes import ExitCode
from platform_assets.home import dagster_home
from platform_assets.tags import LOCATION
from streaming.base import interval
from streaming.declare import Pipeline
from streaming.lake import Settings
from tests.support.deployed import (
    DEPLOY,
    DEPLOYMENTS,
    DOCKERFILE,
    FILES,
    KUBERNETES,
    KUSTOMIZATION,
    PROJECT,
    SERVICES,
    UNITS,
    container,
    environment_file,
    load,
    probes,
    service,
    unit,
)

HEAP = "TIDEMARK_SPARK_DRIVER_MEMORY"
STOP_WITHIN = interval(signature(Pipeline.__init__).parameters["stop_within"].default).total_seconds()
SECRET = re.compile(r"PASSWORD|SECRET|TOKEN|ACCESS_KEY")
REFERENCE = re.compile(r"\$\{([A-Z_]+):\?[^}]+\}")
VARIABLE = re.compile(r"\b(?:TIDEMARK|DAGSTER|AWS)_[A-Z_]+\b")
PREFIXES = ("TIDEMARK_SPARK_", "TIDEMARK_PARAMETER_")


def commands() -> Iterator[list[str]]:
    """Every command that anything here runs in our image or on our machine."""
    for spec in DEPLOYMENTS.values():
        yield container(spec)["args"]
        yield from (probe["exec"]["command"] for probe in probes(container(spec)).values() if "exec" in probe)
    for each in SERVICES.values():
        if each["image"].startswith("tidemark-project:"):
            yield each["command"]
            yield each["healthcheck"]["test"][1:]
    for path in UNITS:
        yield shlex.split(service(path)["ExecStart"].removeprefix("/opt/tidemark/bin/"))
    for line in DOCKERFILE:
        if match := re.search(r"(?:HEALTHCHECK .*)?CMD (\[.*\])", line):
            yield json.loads(match[1])
        elif line.startswith("RUN tidemark "):
            yield shlex.split(line.removeprefix("RUN "))


def options(command: str) -> set[str]:
    """The options of a command of ours, read without importing what it needs."""
    source = (PROJECT / "platform_assets" / "cli" / f"{COMMANDS[command]}.py").read_text()
    function = next(n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name == command)
    named = {f"--{argument.arg.replace('_', '-')}" for argument in function.args.args}
    texts = {node.value for node in ast.walk(function.args) if isinstance(node, ast.Constant)}
    return named | {text for text in texts if isinstance(text, str) and text.startswith("-")}


def test_a_stream_has_the_time_to_end_its_batch_wherever_it_runs() -> None:
    stream = service(DEPLOY / "systemd" / "tidemark-stream@.service")
    graces = {
        "systemd": float(stream["TimeoutStopSec"]),
        "compose": interval(SERVICES["stream-orders"]["stop_grace_period"].replace("s", " seconds")).total_seconds(),
        "kubernetes": DEPLOYMENTS["stream-orders"]["template"]["spec"]["terminationGracePeriodSeconds"],
    }
    assert min(graces.values()) >= STOP_WITHIN + 30, graces
    assert stream["KillMode"] == "mixed", "a JVM that is signalled with its supervisor does not end its batch"
    assert int(stream["RestartPreventExitStatus"]) == ExitCode.STREAM_FAILED


def test_spark_has_the_threads_and_the_memory_that_its_bounds_allow() -> None:
    (settings,) = (
        each["literals"] for each in KUSTOMIZATION["configMapGenerator"] if each["name"] == "tidemark-settings"
    )
    limits = container(DEPLOYMENTS["stream-orders"])["resources"]["limits"]
    on_host, stream = service(DEPLOY / "systemd" / "tidemark-stream@.service"), SERVICES["stream-orders"]
    for given, processors, memory in (
        (dict(entry.split("=", 1) for entry in settings), limits["cpu"], limits["memory"]),
        (stream["environment"], stream["cpus"], stream["mem_limit"]),
        (dict(environment_file()), int(on_host["CPUQuota"].rstrip("%")) // 100, on_host["MemoryMax"]),
    ):
        assert given["TIDEMARK_MASTER"] == f"local[{processors}]"
        # Beside the heap there are what the JVM keeps outside of it, and Python.
        heap, bound = (int(text.rstrip("gGi")) for text in (given[HEAP], memory))
        assert 2 * heap <= bound


def test_every_command_and_option_that_is_used_exists() -> None:
    scripts = {each.name for each in entry_points(group="console_scripts")} | {"stream-is-up", "python"}
    dagster = {
        ("dagster", "api", "grpc"): grpc_command,
        ("dagster", "api", "grpc-health-check"): grpc_health_check_command,
        ("dagster-daemon", "run"): run_command,
        ("dagster-daemon", "liveness-check"): liveness_check_command,
    }
    for command in commands():
        used = {each for each in command[1:] if each.startswith("-")}
        assert command[0] in scripts, command
        if command[0] == "tidemark":
            assert used <= options(command[1]), command
        elif command[0] in ("dagster", "dagster-daemon"):
            (subcommand,) = (subcommand for words, subcommand in dagster.items() if command[: len(words)] == [*words])
            assert used <= {option for each in subcommand.params for option in each.opts}, command


def test_every_variable_that_is_set_is_one_that_somebody_reads() -> None:
    variables = {f"TIDEMARK_{name.upper()}" for name in Settings.model_fields} | {
        "DAGSTER_HOME",
        "DAGSTER_CURRENT_IMAGE",
    }
    for name, place in (("TIDEMARK_JARS", "spark/jars.py"), ("TIDEMARK_PROJECT", "lake/settings.py")):
        assert f'"{name}"' in (PROJECT / "streaming" / place).read_text()
        variables.add(name)
    assert "AWS_ACCESS_KEY_ID" in (PROJECT / "streaming" / "sinks" / "objects.py").read_text()
    assert "AWS_REGION" in (PROJECT / "streaming" / "tables" / "s3.py").read_text()
    variables |= {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"}
    variables |= {*VARIABLE.findall((DEPLOY / "dagster" / "dagster.yaml").read_text())}
    variables |= {*VARIABLE.findall((DEPLOY / "dagster" / "workspace.yaml").read_text())}
    for path in FILES:
        for name in VARIABLE.findall(path.read_text()):
            assert name in variables or name.startswith(PREFIXES), f"{name} in {path.name}"


def test_secrets_are_references_only() -> None:
    for name, each in SERVICES.items():
        for variable, value in each.get("environment", {}).items():
            assert not SECRET.search(variable) or REFERENCE.fullmatch(str(value)), f"{variable} of {name}"
    for spec in DEPLOYMENTS.values():
        assert not any(SECRET.search(each["name"]) for each in container(spec).get("env", []))
    for generated in KUSTOMIZATION["configMapGenerator"]:
        assert not any(SECRET.search(entry.partition("=")[0]) for entry in generated.get("literals", []))
    assert "secretGenerator" not in KUSTOMIZATION
    assert not any(SECRET.search(name) for name, _ in environment_file())
    for path in (DEPLOY / "dagster" / "dagster.yaml", KUBERNETES / "instance" / "dagster.yaml"):
        assert load(path)["storage"]["postgres"]["postgres_db"]["password"] == {"env": "DAGSTER_POSTGRES_PASSWORD"}
    assert not any(SECRET.search(line) for line in DOCKERFILE)


def test_streams_do_not_get_the_password_of_dagsters_database() -> None:
    assert not any("POSTGRES" in name for name in SERVICES["stream-orders"]["environment"])
    of_pod = container(DEPLOYMENTS["stream-orders"])["envFrom"]
    assert {"secretRef": {"name": "dagster-postgres"}} not in of_pod
    stream = unit(DEPLOY / "systemd" / "tidemark-stream@.service")
    assert ("Service", "EnvironmentFile", "/etc/tidemark/dagster.env") not in stream


def test_dagster_is_set_as_on_one_machine_but_for_where_it_keeps_what_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    here, alone = load(DEPLOY / "dagster" / "dagster.yaml"), load(dagster_home() / "dagster.yaml")
    for added in ("storage", "compute_logs", "local_artifact_storage"):
        del here[added]
    # Nobody starts code servers there: one is there.
    del alone["code_servers"]
    # Streams are no runs there.
    runs_here, runs_alone = here["concurrency"]["runs"], alone["concurrency"]["runs"]
    assert runs_here.pop("max_concurrent_runs") < runs_alone.pop("max_concurrent_runs")
    assert here == alone


def test_dagster_is_set_alike_wherever_it_runs() -> None:
    here, there = (load(path / "dagster.yaml") for path in (DEPLOY / "dagster", KUBERNETES / "instance"))
    assert there.pop("run_launcher")["class"] == "K8sRunLauncher"
    for each in (here, there):
        del each["concurrency"]["runs"]["max_concurrent_runs"]
    assert here == there
    workspaces = [load(path / "workspace.yaml") for path in (DEPLOY / "dagster", KUBERNETES / "instance")]
    assert workspaces[0] == workspaces[1]
    assert workspaces[0]["load_from"][0]["grpc_server"]["location_name"] == LOCATION


def test_dagsters_storage_names_the_driver_that_it_was_written_for() -> None:
    storage = load(DEPLOY / "dagster" / "dagster.yaml")["storage"]["postgres"]["postgres_db"]
    assert storage["scheme"] == "postgresql+psycopg2"
