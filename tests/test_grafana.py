"""Boards and alerting rules: they are what Grafana and Prometheus read, and ask only for metrics that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import promql_parser
import pytest
import yaml
from jsonschema import Draft7Validator
from prometheus_client import CollectorRegistry

from docs.examples import tokens
from quality import GATE_INSTRUMENTS, GateCollector, Verdict, store_verdicts
from streaming import Lake
from streaming.base import Access, utc_now
from streaming.service import INSTRUMENTS, LatestValues, StreamCollector, serve
from streaming.service.alerts import ALERTS
from tests.streaming.service.test_metrics import RUNNING
from tests.support.waiting import until

PROJECT = Path(__file__).parents[1]
FOLDER = PROJECT / "deploy" / "grafana"
BOARDS = {name: json.loads((FOLDER / f"{name}.json").read_text()) for name in ("streams", "data-quality")}
RULES = [rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
DECLARED = {**INSTRUMENTS, **GATE_INSTRUMENTS}

_SCHEMAS = Path(__file__).parent / "support" / "grafana"
_VARIABLES = {"$__rate_interval": "5m", "$__range": "1h", "$pipeline": ".*"}
"""What Grafana puts in place of its variables."""


def panels() -> Iterator[tuple[str, dict[str, Any]]]:
    """The panels of all boards that show something, each with the name of its board."""
    for name, board in BOARDS.items():
        yield from ((name, panel) for panel in board["panels"] if panel["type"] != "row")


def queries() -> Iterator[tuple[str, str]]:
    """Every query of a panel and of an alert, as Prometheus gets it, and whose it is."""
    for board, panel in panels():
        for target in panel["targets"]:
            expression = target["expr"]
            for variable, value in _VARIABLES.items():
                expression = expression.replace(variable, value)
            yield f"{board}: {panel['title']} {target['refId']}", expression
    for rule in RULES:
        yield rule["alert"], rule["expr"]


QUERIES = dict(queries())


def selectors(expression: str) -> list[promql_parser.VectorSelector]:
    """The parts of a query that name a metric."""
    found: list[promql_parser.VectorSelector] = []

    def visit(node: object) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        return True

    promql_parser.walk(promql_parser.parse(expression), visit)
    return found


def errors(schema: str, of: str, value: object) -> list[str]:
    """What a value has against a definition of a schema."""
    document = json.loads((_SCHEMAS / f"{schema}.json").read_text())
    if of not in document["definitions"]:
        return []
    found = Draft7Validator({**document, "$ref": f"#/definitions/{of}"}).iter_errors(value)
    return [f"{'/'.join(map(str, error.path))}: {error.message}" for error in found]


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_is_what_grafanas_schema_says(name: str) -> None:
    assert errors("dashboard", "Dashboard", BOARDS[name]) == []


def test_panels_and_queries_are_what_the_schemas_of_their_plugins_say() -> None:
    for board, panel in panels():
        kind, where = panel["type"].replace("-", ""), f"{board}: {panel['title']}"
        custom = panel["fieldConfig"]["defaults"].get("custom", {})
        found = errors(kind, "Options", panel["options"]) + errors(kind, "FieldConfig", custom)
        found += [error for target in panel["targets"] for error in errors("prometheus", "Dataquery", target)]
        assert found == [], where
        assert panel["description"], where


@pytest.mark.parametrize("name", BOARDS)
def test_no_two_panels_of_a_board_lie_upon_each_other(name: str) -> None:
    board = BOARDS[name]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells


@pytest.mark.parametrize("whose", QUERIES)
def test_a_query_asks_for_metrics_and_labels_that_there_are(whose: str) -> None:
    named = selectors(QUERIES[whose])
    assert named
    for selector in named:
        assert selector.name in DECLARED, selector.name
        asked = {matcher.name for matcher in selector.matchers.matchers}
        assert asked <= set(DECLARED[selector.name].labels), (selector.name, asked)


@pytest.mark.parametrize("whose", QUERIES)
def test_totals_are_asked_for_their_growth_and_nothing_else_is(whose: str) -> None:
    grown = set(re.findall(r"(?:rate|increase)\((\w+)", QUERIES[whose]))
    assert grown == {
        str(selector.name) for selector in selectors(QUERIES[whose]) if str(selector.name).endswith("_total")
    }


def test_what_legends_and_alerts_say_of_labels_is_a_label_that_their_query_keeps() -> None:
    said = [
        (QUERIES[f"{board}: {panel['title']} {target['refId']}"], target["legendFormat"])
        for board, panel in panels()
        for target in panel["targets"]
    ]
    said += [(rule["expr"], json.dumps(rule["annotations"]).replace("$labels.", "")) for rule in RULES]
    for query, text in said:
        by = re.findall(r"\bby \(([\w, ]+)\)", query)
        kept = {label for selector in selectors(query) for label in DECLARED[str(selector.name)].labels}
        kept = set(by[0].split(", ")) if by else kept
        assert set(re.findall(r"\{\{ ?(\w+) ?\}\}", text)) <= kept, (query, text)


def test_every_alert_says_how_bad_it_is_and_what_to_do_and_names_alerts_that_there_are() -> None:
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
        assert rule["annotations"]["summary"] and rule["annotations"]["description"].endswith("."), rule["alert"]
        assert set(re.findall(r'alert!?="(\w+)"', rule["expr"])) <= set(ALERTS), rule["alert"]


def test_what_is_up_or_not_is_asked_for_by_an_alert() -> None:
    asked = {selector.name for rule in RULES for selector in selectors(rule["expr"])}
    assert {name for name in DECLARED if name.endswith("_up")} <= asked


@pytest.fixture
def prometheus(lake: Lake, tmp_path: Path) -> Iterator[httpx.Client]:
    """A real Prometheus with the rules, which scrapes metrics as `tidemark metrics` serves them."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("there is no program `prometheus` on the PATH")
    verdicts = [("unique", "passed"), ("usual", "failed")]
    store_verdicts(
        lake,
        [Verdict("orders/log", "id", 1, name, "{}", outcome, "", "run", utc_now()) for name, outcome in verdicts],  # type: ignore[arg-type]
    )
    assert RUNNING.process is not None
    apart = RUNNING.process.model_copy(
        update={"watermarks": {"issued": RUNNING.process.started, "used": RUNNING.process.at}}
    )
    streams = [RUNNING, replace(RUNNING, pipeline=tokens.pipeline, process=apart)]
    registry = CollectorRegistry()
    registry.register(StreamCollector(lambda: streams, utc_now))
    registry.register(GateCollector(lake, utc_now))
    server = serve(0, registry, LatestValues(lake, dict, utc_now), Access("metrics"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = {
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
        "rule_files": [str(FOLDER / "alerts.yaml")],
        "scrape_configs": [
            {"job_name": "tidemark", "static_configs": [{"targets": [f"127.0.0.1:{server.server_port}"]}]}
        ],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    with (tmp_path / "output").open("w+") as output:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={tmp_path / 'prometheus.yml'}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdout=output,
            stderr=output,
        )
        try:

            def address() -> str | None:
                told = re.search(r"Listening on.* address=(\S+)", (tmp_path / "output").read_text())
                return told and told[1]

            until(address, "listening")
            with httpx.Client(base_url=f"http://{address()}/api/v1") as client:
                yield client
        finally:
            process.terminate()
            process.wait()
            server.shutdown()
            server.server_close()


@pytest.mark.long
def test_a_real_prometheus_answers_every_query_and_evaluates_every_rule(prometheus: httpx.Client) -> None:
    def ask(query: str) -> list[Any]:
        answer = prometheus.get("/query", params={"query": query}).json()
        assert answer["status"] == "success", (query, answer)
        return list(answer["data"]["result"])

    def rules() -> list[dict[str, Any]]:
        groups = prometheus.get("/rules").json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    until(lambda: ask("rate(tidemark_query_rows_total[1m])"), "scraped twice")
    until(lambda: rules() and all(rule["health"] == "ok" for rule in rules()), "evaluated")
    assert {rule["name"] for rule in rules()} == {rule["alert"] for rule in RULES}
    firing = {rule["name"] for rule in rules() if rule["state"] == "firing"}
    assert "TidemarkExpectationNotMet" in firing and "TidemarkStreamDown" not in firing

    silent = {whose for whose, query in QUERIES.items() if not ask(query)}
    expected = {whose for whose, query in QUERIES.items() if re.search(r"(>|==|absent)", query)}
    assert silent <= expected, silent - expected
