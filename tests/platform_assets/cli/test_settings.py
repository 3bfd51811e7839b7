"""What a deployment sets wins over the code, and the difference is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streaming import Kafka, parameter
from streaming.base.errors import DeclarationError, SettingsError
from tests.platform_assets.conftest import Typed

PIPELINE = """
from streaming import BoundedOutOfOrderness, Json, Kafka, Pipeline, Stream, parameter

source = Kafka(parameter("calls_servers", "localhost:9092"), topic=parameter("calls_topic", "calls"))
calls = Stream("calls", source, Json("id string, at timestamp"), "at", BoundedOutOfOrderness("1 second"))
pipeline = Pipeline(calls)
"""


def test_r6_servers_topics_and_parallelism_are_the_deployments_and_what_it_changed_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Typed
) -> None:
    package = tmp_path / "deployed_calls"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "calls.py").write_text(PIPELINE)
    monkeypatch.syspath_prepend(tmp_path)
    for name, value in {
        "TIDEMARK_PIPELINES": "deployed_calls",
        "TIDEMARK_PARAMETER_CALLS_SERVERS": "broker.example:9093",
        "TIDEMARK_MASTER": "local[3]",
        "TIDEMARK_SPARK_HADOOP_FS_S3A_SECRET_KEY": "sesame",
        "TIDEMARK_SPARK_UI_ENABLED": "[true]",
        "TIDEMARK_ALERTS_TO": "https://chat.example:8443/hooks/sesame?with=sesame",
    }.items():
        monkeypatch.setenv(name, value)
    code, out, _ = typed("settings --json")
    assert code == 0
    shown = {each["name"]: each for each in json.loads(out)["settings"]}
    assert shown["calls_servers"] == {
        "name": "calls_servers",
        "in_code": "localhost:9092",
        "in_force": "broker.example:9093",
        "by": "TIDEMARK_PARAMETER_CALLS_SERVERS",
    }
    assert (shown["calls_topic"]["in_force"], shown["calls_topic"]["by"]) == ("calls", "")
    assert (shown["master"]["in_code"], shown["master"]["in_force"]) == ("local[*]", "local[3]")
    code, out, _ = typed("settings")
    # Brackets are no markup, and nobody reads a password over somebody's shoulder.
    assert code == 0 and "[true]" in out and "sesame" not in out
    assert shown["alerts_to"]["in_force"] == "https://chat.example:8443/..."
    assert shown["spark.hadoop.fs.s3a.secret.key"]["in_force"] == "(not shown)"


def test_a_parameter_is_read_as_its_default_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"P_ROWS": "500", "P_SHARE": "0.5", "P_ON": "Yes", "P_TOPIC": "t"}.items():
        monkeypatch.setenv(f"TIDEMARK_PARAMETER_{name}", value)
    assert (parameter("p_rows", 1), parameter("p_share", 1.0), parameter("p_on", False)) == (500, 0.5, True)
    assert Kafka("localhost:9092", topic=parameter("p_topic", "orders")).topic == "t"


def test_a_parameter_that_cannot_be_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_PARAMETER_Q_ROWS", "many")
    with pytest.raises(SettingsError, match="TIDEMARK_PARAMETER_Q_ROWS='many' is no int, which parameter 'q_rows' is"):
        parameter("q_rows", 1)
    with pytest.raises(DeclarationError, match="'Rows' cannot name a parameter"):
        parameter("Rows", 1)
    parameter("q_twice", 1)
    with pytest.raises(DeclarationError, match="'q_twice' is declared with 2 here and with 1 elsewhere"):
        parameter("q_twice", 2)
