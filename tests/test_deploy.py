"""The files of deploy/, as far as they can be judged without Docker, a cluster or systemd."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shlex
import tarfile
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
import yaml
from dagster._cli.api import grpc_command, grpc_health_check_command
from dagster._daemon.cli import liveness_check_command, run_command

from platform_assets.cli.app import COMMANDS
from platform_assets.cli.exit_codes import ExitCode
from platform_assets.instance import dagster_home
from platform_assets.tags import LOCATION
from streaming.base import interval
from streaming.declare import Pipeline
from streaming.lake import Settings
from streaming.service.status import State

PROJECT = Path(__file__).resolve().parent.parent
DEPLOY = PROJECT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
API_VERSIONS = {
    "Deployment": "apps/v1",
    "Namespace": "v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "PersistentVolumeClaim": "v1",
    "Role": "rbac.authorization.k8s.io/v1",
    "RoleBinding": "rbac.authorization.k8s.io/v1",
    "Service": "v1",
    "ServiceAccount": "v1",
}
USER = 10001
HEAP = "TIDEMARK_SPARK_DRIVER_MEMORY"
STOP_WITHIN = interval(signature(Pipeline.__init__).parameters["stop_within"].default).total_seconds()
SECRET = re.compile(r"PASSWORD|SECRET|TOKEN|ACCESS_KEY")
REFERENCE = re.compile(r"\$\{([A-Z_]+):\?[^}]+\}")
VARIABLE = re.compile(r"\b(?:TIDEMARK|DAGSTER|AWS)_[A-Z_]+\b")
PREFIXES = ("TIDEMARK_SPARK_", "TIDEMARK_PARAMETER_")


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


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


def test_kustomize_takes_every_manifest_there_is() -> None:
    assert {path.name for path in MANIFESTS} == {*KUSTOMIZATION["resources"]}


@pytest.mark.parametrize("document", OBJECTS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_an_object_says_what_it_is_and_is_no_secret(document: dict[str, Any]) -> None:
    assert document["apiVersion"] == API_VERSIONS[document["kind"]]
    assert re.fullmatch(r"[a-z][a-z0-9-]*", document["metadata"]["name"])


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment_is_one_pod_that_is_gone_before_the_next_one_starts(name: str) -> None:
    assert DEPLOYMENTS[name]["replicas"] == 1
    assert DEPLOYMENTS[name]["strategy"] == {"type": "Recreate"}
    labels = DEPLOYMENTS[name]["selector"]["matchLabels"]
    assert labels.items() <= DEPLOYMENTS[name]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_pod_has_no_rights_and_writes_only_to_its_volumes(name: str) -> None:
    pod, only = DEPLOYMENTS[name]["template"]["spec"], container(DEPLOYMENTS[name])
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == USER
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod.get("serviceAccountName") == "dagster" or pod["automountServiceAccountToken"] is False
    assert {each["name"] for each in only["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    assert "/tmp" in {each["mountPath"] for each in only["volumeMounts"]}


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_pod_has_bounds_and_is_looked_at(name: str) -> None:
    only = container(DEPLOYMENTS[name])
    assert {*only["resources"]["requests"]} == {*only["resources"]["limits"]} == {"cpu", "memory"}
    assert {"startupProbe", "livenessProbe"} <= {*probes(only)}
    for probe in probes(only).values():
        assert {"periodSeconds", "timeoutSeconds", "failureThreshold"} <= {*probe}
        ports = {each["containerPort"] for each in only.get("ports", [])}
        asked = [probe[kind]["port"] for kind in ("grpc", "httpGet") if kind in probe]
        assert {*asked} <= ports


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_what_a_pod_refers_to_is_there_or_said_to_be_made(name: str) -> None:
    pod, only = DEPLOYMENTS[name]["template"]["spec"], container(DEPLOYMENTS[name])
    maps = {each["name"] for each in KUSTOMIZATION["configMapGenerator"]}
    made = {each["metadata"]["name"] for each in OBJECTS if each["kind"] == "PersistentVolumeClaim"}
    readme = (DEPLOY / "README.md").read_text()
    for each in only["envFrom"]:
        assert "configMapRef" not in each or each["configMapRef"]["name"] in maps
        assert "secretRef" not in each or f"create secret generic {each['secretRef']['name']}" in readme
    for volume in pod["volumes"]:
        assert "configMap" not in volume or volume["configMap"]["name"] in maps
        assert "persistentVolumeClaim" not in volume or volume["persistentVolumeClaim"]["claimName"] in made


def test_a_run_is_a_pod_as_bounded_as_the_others_and_of_the_image_of_the_code_server() -> None:
    launcher = load(KUBERNETES / "instance" / "dagster.yaml")["run_launcher"]["config"]
    of_stream = DEPLOYMENTS["stream-orders"]["template"]["spec"]
    pod, only = launcher["run_k8s_config"]["pod_spec_config"], launcher["run_k8s_config"]["container_config"]
    assert camel(pod["security_context"]) == of_stream["securityContext"]
    assert camel(pod["volumes"]) == of_stream["volumes"]
    assert camel(only) == {
        key: container(DEPLOYMENTS["stream-orders"])[key] for key in ("securityContext", "resources", "volumeMounts")
    }
    named = {each["name"] for each in KUSTOMIZATION["configMapGenerator"]}
    assert {launcher["instance_config_map"], *launcher["env_config_maps"]} <= named
    assert launcher["job_namespace"] == KUSTOMIZATION["namespace"]
    code = container(DEPLOYMENTS["dagster-code"])
    assert {"name": "DAGSTER_CURRENT_IMAGE", "value": code["image"]} in code["env"]
    assert KUSTOMIZATION["replacements"][0]["source"]["name"] == "dagster-code"


def camel(value: Any) -> Any:
    """The same with the names of Kubernetes' own files, where Dagster has those of its Python client."""
    if isinstance(value, list):
        return [camel(each) for each in value]
    if isinstance(value, dict):
        return {re.sub(r"_(\w)", lambda match: match[1].upper(), key): camel(each) for key, each in value.items()}
    return value


def test_compose_services_use_only_what_is_declared() -> None:
    for name, each in SERVICES.items():
        volumes = {entry.partition(":")[0] for entry in each.get("volumes", [])} - {"/tmp"}
        assert volumes <= {*COMPOSE["volumes"]}, name
        assert {*each["networks"]} <= {*COMPOSE["networks"]}, name
        for other, wanted in each.get("depends_on", {}).items():
            assert wanted == {"condition": "service_healthy"} and "healthcheck" in SERVICES[other], name


@pytest.mark.parametrize("name", SERVICES)
def test_a_compose_service_has_bounds_no_rights_and_a_health_check(name: str) -> None:
    each = SERVICES[name]
    assert {"mem_limit", "cpus", "healthcheck", "restart"} <= {*each}
    assert each["cap_drop"] == ["ALL"] and each["security_opt"] == ["no-new-privileges:true"]
    # Kafka's image writes its configuration into itself.
    assert each["read_only"] is (name != "kafka")
    assert not {"privileged", "deploy", "scale", "network_mode", "pid", "user"} & {*each}
    assert all(port.startswith("127.0.0.1:") for port in each.get("ports", []))
    assert each["healthcheck"]["test"][0] == "CMD"


def test_all_who_write_the_lake_on_one_host_share_its_name_for_the_lease() -> None:
    writers = [each for each in SERVICES.values() if "TIDEMARK_MASTER" in each.get("environment", {})]
    assert len(writers) == 2 and {each["hostname"] for each in writers} == {"tidemark"}
    assert all("state:/var/lib/tidemark" in each["volumes"] for each in writers)


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


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_has_bounds_no_rights_and_an_account_of_its_own(path: Path) -> None:
    read = service(path)
    assert read["User"] == read["Group"] == read["StateDirectory"] == "tidemark"
    assert (
        read["NoNewPrivileges"] == "yes" and read["ProtectSystem"] == "strict" and read["CapabilityBoundingSet"] == ""
    )
    assert {"MemoryMax", "CPUQuota", "Restart"} <= {*read}
    assert {section for section, _, _ in unit(path)} == {"Unit", "Service", "Install"}
    names = {each.stem for each in UNITS} | {"network-online.target", "postgresql.service"}
    for _, key, value in unit(path):
        if key == "After":
            assert {each.removesuffix(".service") for each in value.split()} <= {
                name.removesuffix(".service") for name in names
            }


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
        heap, bound = (int(re.fullmatch(r"(\d+)(g|G|Gi)", text)[1]) for text in (given[HEAP], memory))
        assert 2 * heap <= bound


def environment_file() -> Iterator[tuple[str, str]]:
    for line in (DEPLOY / "systemd" / "settings.env").read_text().splitlines():
        if not line.startswith("#"):
            name, _, value = line.partition("=")
            yield name, value


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
            (known,) = (known for words, known in dagster.items() if command[: len(words)] == [*words])
            assert used <= {option for each in known.params for option in each.opts}, command


def test_every_variable_that_is_set_is_one_that_somebody_reads() -> None:
    known = {f"TIDEMARK_{name.upper()}" for name in Settings.model_fields} | {"DAGSTER_HOME", "DAGSTER_CURRENT_IMAGE"}
    for name, place in (("TIDEMARK_JARS", "spark/jars.py"), ("TIDEMARK_PROJECT", "lake/project.py")):
        assert f'"{name}"' in (PROJECT / "streaming" / place).read_text()
        known.add(name)
    assert "AWS_ACCESS_KEY_ID" in (PROJECT / "streaming" / "sinks" / "objects.py").read_text()
    assert "AWS_REGION" in (PROJECT / "streaming" / "tables" / "s3.py").read_text()
    known |= {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"}
    known |= {*VARIABLE.findall((DEPLOY / "dagster" / "dagster.yaml").read_text())}
    known |= {*VARIABLE.findall((DEPLOY / "dagster" / "workspace.yaml").read_text())}
    for path in FILES:
        for name in VARIABLE.findall(path.read_text()):
            assert name in known or name.startswith(PREFIXES), f"{name} in {path.name}"


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


def of_image(name: str) -> ModuleType:
    """A script of the image as a module."""
    spec = spec_from_file_location(name, DEPLOY / "image" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_bare_root_becomes_an_image_that_is_started_as_the_dockerfile_says(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for path in ("etc/tidemark/image.json", "project/acme.py", "proc/1/cmdline"):
        (root / path).parent.mkdir(parents=True)
        (root / path).touch()
    said = {"USER": "10001:10001", "WORKDIR": "/project", "ENV": {"HOME": "/tmp"}}
    started = {"ENTRYPOINT": '["/usr/bin/tini", "--"]', "CMD": '["tidemark", "status"]'}
    (root / "etc/tidemark/image.json").write_text(json.dumps(said | started))
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
    said = {
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
    line = of_image("executor").command(said)
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
        of_image("executor").command({name: value for name, value in said.items() if name != "SPARK_DRIVER_URL"})


def test_executors_are_as_bounded_as_their_driver_and_reach_it_and_nobody_else_does() -> None:
    folder = KUBERNETES / "executors"
    pod, stream = load(folder / "template.yaml"), DEPLOYMENTS["stream-orders"]["template"]["spec"]
    (executor,) = pod["spec"]["containers"]
    assert pod["spec"]["securityContext"] == stream["securityContext"]
    assert pod["spec"]["volumes"] == stream["volumes"]
    for key in ("image", "securityContext", "volumeMounts"):
        assert executor[key] == container(DEPLOYMENTS["stream-orders"])[key]
    to_driver, among = yaml.safe_load_all((folder / "network-policy.yaml").read_text())
    label = {"app.kubernetes.io/name": pod["metadata"]["labels"]["app.kubernetes.io/name"]}
    assert to_driver["spec"]["podSelector"]["matchLabels"].items() <= stream_labels().items()
    assert to_driver["spec"]["ingress"][0]["from"] == [{"podSelector": {"matchLabels": label}}]
    assert among["spec"]["podSelector"] == {"matchLabels": label}
    added = container({"template": load(folder / "driver.yaml")["spec"]["template"]})
    ports = [each["value"] for each in added["env"] if each["name"].lower().endswith("port")]
    # A command that is run in the stream's pod has executors of its own, and where a port is taken Spark tries 16 more.
    (open_ports,) = to_driver["spec"]["ingress"][0]["ports"]
    assert (open_ports["port"], open_ports["endPort"]) == (int(min(ports)), int(max(ports)) + 16)
    # Where the driver is a pod that Spark did not make, it adds a tenth to the heap, and nothing for Python.
    sizes = {each["name"].removeprefix("TIDEMARK_SPARK_"): each.get("value") for each in added["env"]}
    heap, beside = sizes["EXECUTOR_MEMORY"], sizes.get("spark.executor.memoryOverhead", "0g")
    assert int(beside.removesuffix("g")) >= 0.4 * int(heap.removesuffix("g"))
    (account,) = (each for each in yaml.safe_load_all((folder / "account.yaml").read_text()) if "rules" in each)
    assert load(folder / "driver.yaml")["spec"]["template"]["spec"]["serviceAccountName"] == account["metadata"]["name"]
    component = load(folder / "kustomization.yaml")
    named = {*component["resources"], *component["configMapGenerator"][0]["files"], component["patches"][0]["path"]}
    assert named | {"kustomization.yaml", "image.yaml"} == {path.name for path in folder.iterdir()}


def stream_labels() -> dict[str, str]:
    """Those of the stream's pod."""
    labels: dict[str, str] = DEPLOYMENTS["stream-orders"]["template"]["metadata"]["labels"]
    return labels


def test_a_stream_is_down_where_nothing_will_start_it_by_itself() -> None:
    check = of_image("stream_is_up")
    said = {}
    for state in get_args(State):
        others = {"pipeline": "visits", "state": "failed", "why": "its own affair"}
        document = {"pipelines": [others, {"pipeline": "orders", "state": state, "why": "the disk is full"}]}
        said[state] = check.problem(document, "orders")
    assert {state for state, problem in said.items() if problem} == {"failed", "stopped"}
    assert said["failed"] == "orders is failed: the disk is full"


def test_the_wheel_has_nothing_of_it_and_the_readmes_name_it() -> None:
    found = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]
    assert not any(fnmatch("deploy", pattern) for pattern in found["include"])
    assert "| `deploy/` |" in (PROJECT / "README.md").read_text()
    readme = (DEPLOY / "README.md").read_text()
    for folder in sorted({path.parent for path in FILES} - {DEPLOY}):
        assert f"`{folder.relative_to(DEPLOY)}/`" in readme
