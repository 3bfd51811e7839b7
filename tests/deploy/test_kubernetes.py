"""The manifests of deploy/kubernetes/, as far as they can be judged without a cluster."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.support.deployed import (
    DEPLOY,
    DEPLOYMENTS,
    KUBERNETES,
    KUSTOMIZATION,
    MANIFESTS,
    OBJECTS,
    USER,
    container,
    load,
    probes,
)

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
