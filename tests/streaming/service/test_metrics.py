from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from docs.examples import tokens
from quality import GATE_INSTRUMENTS
from streaming.service.alerts import ALERTS
from streaming.service.metrics import INSTRUMENTS, StreamCollector, samples
from streaming.service.overview import Overview
from streaming.service.status import LateValue, ProcessStatus, QueryStatus, ReceiverStatus, ValuesStatus
from streaming.sources.source import SourceBacklog
from tests.support.instants import at
from tests.support.pipelines.beats import pipeline

RUNNING = Overview(
    pipeline,
    "running",
    at(0),
    "",
    None,
    2,
    (),
    ProcessStatus(
        pid=1,
        started=at(0),
        at=at(60),
        passed=at(60),
        queries={
            "log": QueryStatus(rows=9, rejected=4, batches=2, reasons={"least": 3, "json": 1}, warned={"most": 2}),
            "by_id": QueryStatus(rows=3, last_seconds=0.5, state_rows=7, state_bytes=700, behind=4, watermark=at(0)),
        },
        watermark=at(10),
        rejected=4,
        late=5,
        input_rate=6.5,
        processing_rate=60.0,
        latency=(0.5, 0.95, 0.99),
        backlog=(SourceBacklog(8, "files", 9), SourceBacklog(11, "rows")),
        catch_up_seconds=40.0,
        memory_bytes=10,
        values={"beats/log": ValuesStatus(at=at(60), known=7, late=1, named=(LateValue(value="id=a", newest=at(10)),))},
    ),
    (
        ReceiverStatus(
            name="in",
            address="tcp://h:1",
            guarantee="at most once",
            state="receiving",
            since=at(0),
            at=at(60),
            pid=2,
            rows=12,
            landed=9,
            losses=2,
        ),
    ),
)
STOPPED = Overview(pipeline, "stopped", None, "it was never started here", None, 0, (), None)


def scraped(*streams: Overview) -> str:
    registry = CollectorRegistry()
    registry.register(StreamCollector(lambda: streams, lambda: at(70)))
    return generate_latest(registry).decode()


def test_o7_metrics() -> None:
    assert RUNNING.process is not None
    process = RUNNING.process.model_copy(update={"watermarks": {"issued": at(10), "used": at(13)}})
    text = scraped(RUNNING, replace(RUNNING, pipeline=tokens.pipeline, process=process))
    assert {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")} == set(INSTRUMENTS)
    for sample in (
        'tidemark_stream_up{pipeline="beats"} 1.0',
        'tidemark_stream_restarts_total{pipeline="beats"} 2.0',
        'tidemark_stream_rejected_rows_total{pipeline="beats"} 4.0',
        'tidemark_stream_watermark_lag_seconds{pipeline="beats"} 60.0',
        'tidemark_stream_watermark_skew_seconds{pipeline="tokens"} 3.0',
        'tidemark_stream_latency_seconds{pipeline="beats",quantile="0.95"} 0.95',
        'tidemark_stream_backlog_files{pipeline="beats"} 8.0',
        'tidemark_stream_backlog_bytes{pipeline="beats"} 9.0',
        'tidemark_stream_backlog_rows{pipeline="beats"} 11.0',
        'tidemark_stream_catch_up_seconds{pipeline="beats"} 40.0',
        'tidemark_stream_alert{alert="stream_is_up",pipeline="beats"} 0.0',
        'tidemark_stream_late_pairs_total{pipeline="beats"} 5.0',
        'tidemark_query_rows_total{pipeline="beats",query="log"} 9.0',
        'tidemark_query_rejected_rows_total{pipeline="beats",query="log"} 4.0',
        'tidemark_query_behind_batches{pipeline="beats",query="by_id"} 4.0',
        'tidemark_query_watermark_lag_seconds{pipeline="beats",query="by_id"} 70.0',
        'tidemark_rule_rejected_rows_total{pipeline="beats",query="log",rule="least"} 3.0',
        'tidemark_rule_warned_rows_total{pipeline="beats",query="log",rule="most"} 2.0',
        'tidemark_query_state_rows{pipeline="beats",query="by_id"} 7.0',
        'tidemark_freshness_values{pipeline="beats",table="beats/log"} 7.0',
        'tidemark_freshness_late_values{pipeline="beats",table="beats/log"} 1.0',
        'tidemark_freshness_oldest_seconds{pipeline="beats",table="beats/log"} 60.0',
        'tidemark_receiver_up{pipeline="beats",receiver="in"} 1.0',
        'tidemark_receiver_rows_total{pipeline="beats",receiver="in"} 12.0',
        'tidemark_receiver_unlanded_rows{pipeline="beats",receiver="in"} 3.0',
        'tidemark_receiver_losses_total{pipeline="beats",receiver="in"} 2.0',
    ):
        assert sample in text


def test_a_stream_that_does_not_run_says_so_and_that_nobody_is_alarmed_and_nothing_else() -> None:
    told = list(samples(STOPPED, at(70)))
    assert told[:2] == [
        ("tidemark_stream_up", {"pipeline": "beats"}, 0.0),
        ("tidemark_stream_restarts_total", {"pipeline": "beats"}, 0.0),
    ]
    assert {(name, labels["alert"], value) for name, labels, value in told[2:]} == {
        ("tidemark_stream_alert", alert, 0.0) for alert in ALERTS
    }


def test_a_stream_that_has_failed_raises_its_alert() -> None:
    assert 'tidemark_stream_alert{alert="stream_is_up",pipeline="beats"} 1.0' in scraped(
        replace(STOPPED, state="failed")
    )


def test_every_sample_has_the_labels_of_its_instrument_and_totals_are_the_counters() -> None:
    for name, labels, _ in samples(RUNNING, at(70)):
        assert tuple(labels) == INSTRUMENTS[name].labels, name
    kinds = {line.split()[2]: line.split()[3] for line in scraped(RUNNING).splitlines() if line.startswith("# TYPE")}
    assert {name for name, kind in kinds.items() if kind == "counter"} == {
        name for name in kinds if name.endswith("_total")
    }


def test_a_watermark_is_no_metric_before_there_is_one() -> None:
    assert RUNNING.process is not None
    fresh = RUNNING.process.model_copy(update={"watermark": None, "latency": None})
    text = scraped(Overview(pipeline, "running", at(0), "", None, 0, (), fresh))
    assert "tidemark_stream_watermark" not in text
    assert "latency" not in text


def test_the_page_of_metrics_lists_each_with_its_kind_labels_and_meaning() -> None:
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    told = [line for line in page.splitlines() if line.startswith("| `tidemark_")]
    assert told == [
        f"| `{each.name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)} | {each.meaning} |"
        for each in (*INSTRUMENTS.values(), *GATE_INSTRUMENTS.values())
    ]
