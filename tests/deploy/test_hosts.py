"""Compose and systemd of deploy/, as far as they can be judged without Docker and systemd."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.deployed import (
    COMPOSE,
    SERVICES,
    UNITS,
    service,
    unit,
)


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
