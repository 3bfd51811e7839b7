"""Documents that commands print with `--json`. The fields are stable: one may be added, none is renamed or taken away.

Instants are ISO 8601 in UTC, lengths of time are seconds, shares are between 0 and 1; what is not known is null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

from pydantic import BaseModel

from platform_assets.reports.publish import Published
from platform_assets.reports.report import Report
from quality import GateClosed
from streaming.base import interval
from streaming.lake import Lake
from streaming.lateness import Outcome, Profile, Spread
from streaming.log import Retraction
from streaming.operations import RetractionPreview
from streaming.operators import Finding


class Document(BaseModel):
    """The document that one command prints."""

    def print(self) -> None:
        """To stdout, indented for people who look at it."""
        print(self.model_dump_json(indent=2))


class FindingDocument(BaseModel):
    """One law: `checked` is how many things were compared, `broken` how many of them break it.

    `independent`: what must be was computed by another engine than what is. `waiting`: rows still to be delivered.
    `unasked`: why nothing could be compared, such as that a target is away; empty otherwise.
    """

    law: str
    subject: str
    compared: str
    checked: int
    broken: int
    holds: bool
    advice: str
    independent: bool
    waiting: int = 0
    unasked: str = ""


class AuditDocument(Document):
    """`tidemark audit --json`."""

    lake: str
    pipeline: str
    holds: bool
    findings: list[FindingDocument]

    @classmethod
    def of(cls, lake: str, pipeline: str, findings: Sequence[Finding]) -> AuditDocument:
        """The document of an audit."""
        held = all(finding.holds for finding in findings)
        return cls(lake=lake, pipeline=pipeline, holds=held, findings=[_finding(finding) for finding in findings])


class ContractReaderDocument(BaseModel):
    """One that reads what would change: a stream, view or other operator, a delivery or a report, and why."""

    what: str
    name: str
    pipeline: str
    why: str


class ContractDifferenceDocument(BaseModel):
    """One difference: `breaks` is `readers`, `writers` or `nobody`; `column` is null where it is about none."""

    breaks: str
    text: str
    column: str | None
    readers: list[ContractReaderDocument]


class ContractDocument(Document):
    """`tidemark contract check --json`.

    `against` is the older file, or the stream; null where nothing was compared. `compatible`: no difference breaks
    anybody. `untaken` are the parts of the file that change nothing here, by their places in it.
    """

    file: str
    id: str
    version: str
    status: str
    against: str | None
    compatible: bool
    differences: list[ContractDifferenceDocument]
    untaken: list[str]


class SpreadDocument(BaseModel):
    """The delay that half, 90 %, 99 % and all of some pairs of row and window need; null where none is enough."""

    of: list[str]
    pairs: int
    p50_seconds: float | None
    p90_seconds: float | None
    p99_seconds: float | None
    greatest_seconds: float | None


class OutcomeDocument(BaseModel):
    """The outcome that a delay would have had; see `streaming.lateness.Outcome`."""

    delay_seconds: float
    pairs: int
    late_pairs: int
    share_on_time: float
    results: int
    mean_wait_seconds: float | None
    max_wait_seconds: float | None
    mean_open_windows: float
    max_open_windows: int


class LatenessDocument(Document):
    """`tidemark lateness --json`; `recommended_delay` is null where no delay makes the share `complete` be on time."""

    lake: str
    pipeline: str
    view: str
    complete: float
    declared_delay: str
    declared_delay_seconds: float
    recommended_delay: str | None
    recommended_delay_seconds: float | None
    explanation: str
    overall: SpreadDocument
    by_partition: list[SpreadDocument]
    by_key: list[SpreadDocument]
    outcomes: list[OutcomeDocument]
    chart: str

    @classmethod
    def of(cls, lake: str, pipeline: str, profile: Profile, explanation: str, chart: str) -> LatenessDocument:
        """The document of a profile."""
        recommended = profile.recommended
        return cls(
            lake=lake,
            pipeline=pipeline,
            view=profile.view,
            complete=profile.complete,
            declared_delay=profile.declared,
            declared_delay_seconds=interval(profile.declared).total_seconds(),
            recommended_delay=recommended,
            recommended_delay_seconds=None if recommended is None else interval(recommended).total_seconds(),
            explanation=explanation,
            overall=_spread(profile.overall),
            by_partition=[_spread(spread) for spread in profile.by_partition],
            by_key=[_spread(spread) for spread in profile.by_key],
            outcomes=[_outcome(outcome) for outcome in profile.outcomes],
            chart=chart,
        )


class ChangedDocument(Document):
    """`tidemark changed --json`: a part has the columns `by`, and how many results were `added` and `taken_back`."""

    lake: str
    pipeline: str
    view: str
    since: int
    revision: int
    by: list[str]
    parts: list[dict[str, Any]]


class VolumeDocument(BaseModel):
    """Rows to be read, by the statistics of files; `first` and `last` are days, null where files do not say."""

    rows: int
    bytes: int
    days: int
    first: date | None
    last: date | None


class RateDocument(BaseModel):
    """The rows that `steps` steps of an operator have followed `per_second`.

    With `is_estimate` it is the slowest other one that was measured, as nobody has measured the own one.
    """

    per_second: float
    steps: int
    of: str
    is_estimate: bool


class KeysDocument(BaseModel):
    """The keys of the results that are built anew: `number` values of the `columns`, of which `few` are the first ones.

    `times` are the different windows, or values of the first instant, in the key, from `first` to `last`; 0 and null
    where it has none.
    """

    columns: list[str]
    number: int
    few: list[dict[str, Any]]
    times: int
    of_windows: bool
    first: datetime | None
    last: datetime | None


class JudgementDocument(BaseModel):
    """The rows of a sample of a log by today's rules: those of the `valid` ones that each new or changed one rejects.

    `in_all` are those that any of them rejects, and `accepted` those of the `refused` rows that would be valid.
    `not_asked` are new or changed rules over masked columns.
    """

    sample: str
    valid: int
    rejected: dict[str, int]
    in_all: int
    refused: int
    accepted: int
    not_asked: list[str] = []


class ReplayDocument(BaseModel):
    """Results of a sample by today's declaration, held against those that are published.

    `rows` have the `outcome`, the key, then `x before` and `x after` for each value.
    """

    sample: str
    key: list[str]
    equal: int
    different: int
    added: int
    gone: int
    caveat: str
    rows: list[dict[str, Any]]


class PartDocument(BaseModel):
    """One thing that is declared, or was, and what brings the lake to it; see `tidemark.Rollout`.

    `keys` are those of its results, and `reports` those that are published again, once it is built anew. `keys` is null
    where results have no key, and where there are more than five million of them. With --diff there is a `replay` of an
    operator, and a `judgement` of a stream whose rules are others.
    """

    name: str
    kind: str
    state: str
    changes: list[str]
    action: str
    advice: str
    published: int
    state_rows: int
    reads: VolumeDocument | None
    rate: RateDocument | None
    seconds: float | None
    followers: list[str]
    keys: KeysDocument | None = None
    reports: list[str] = []
    replay: ReplayDocument | None = None
    judgement: JudgementDocument | None = None


class BrokenModuleDocument(BaseModel):
    """A module that cannot be used, so that what it declares is missing; see `streaming.base.BrokenModule`."""

    module: str
    file: str | None
    line: int | None
    reason: str


class PipelinePlanDocument(BaseModel):
    """The parts of one pipeline, and how many of them the lake has otherwise than they are declared.

    `outdated` are the reports on results that were built anew since they were published.
    """

    pipeline: str
    pending: int
    parts: list[PartDocument]
    outdated: list[str] = []


class PlanDocument(Document):
    """`tidemark plan --json`; `pending` is the sum over all pipelines.

    Where it is 0, no report is outdated and there are no `broken_modules`, the command exits with 0. Modules are told
    where no pipeline was named.
    """

    lake: str
    pending: int
    pipelines: list[PipelinePlanDocument]
    broken_modules: list[BrokenModuleDocument] = []


class VerdictDocument(BaseModel):
    """The verdict of an expectation on a section of a report."""

    table: str
    version: int
    expectation: str
    outcome: str
    observed: str


class ReasonDocument(BaseModel):
    """Why the gate is closed, or what it let pass with a warning; see `quality.Reason`."""

    why: str
    table: str
    version: int | None
    expectation: str | None
    observed: str | None
    text: str


class ReportDocument(Document):
    """`tidemark report --json`: the rows of each section where it was `published`, otherwise the `reasons` why not.

    With `as_of`, batches by stream, nothing was judged or published: with a `run_id` it is what that run has published
    of these batches, without one what it would have.
    """

    lake: str
    report: str
    pipeline: str
    published: bool
    run_id: str | None = None
    read_versions: dict[str, int | None] = {}
    versions: dict[str, int] = {}
    sections: dict[str, list[dict[str, Any]]] = {}
    footnotes: list[str] = []
    files: dict[str, list[str]] = {}
    dimensions: dict[str, int] = {}
    chart: str | None = None
    verdicts: list[VerdictDocument] = []
    warnings: list[ReasonDocument] = []
    code: str | None = None
    reasons: list[ReasonDocument] = []
    as_of: dict[str, int] | None = None

    @classmethod
    def past(
        cls,
        lake: Lake,
        report: Report,
        notes: Sequence[str],
        sections: Mapping[str, list[dict[str, Any]]],
        run_id: str | None = None,
    ) -> ReportDocument:
        """The document of a report as of the batches of the lake's cut."""
        document = cls(lake=lake.root, report=report.name, pipeline=report.pipeline.name, published=False)
        fields = {"as_of": dict(lake.cut or {}), "sections": dict(sections), "footnotes": list(notes), "run_id": run_id}
        return document.model_copy(update=fields)

    @classmethod
    def of(
        cls, lake: str, report: Report, published: Published, sections: Mapping[str, list[dict[str, Any]]]
    ) -> ReportDocument:
        """The document of what was published, with the rows of its sections."""
        return cls(
            lake=lake,
            report=report.name,
            pipeline=report.pipeline.name,
            published=True,
            run_id=published.run_id,
            read_versions=published.pins.versions(),
            versions=dict(published.versions),
            sections=dict(sections),
            footnotes=list(published.footnotes),
            files={table: list(paths) for table, paths in published.files.items()},
            dimensions={name: pin.version for name, pin in published.dimensions.items()},
            chart=published.png,
            verdicts=[VerdictDocument.model_validate(each, from_attributes=True) for each in published.verdicts],
            warnings=[ReasonDocument.model_validate(each, from_attributes=True) for each in published.warnings],
        )

    @classmethod
    def refused(cls, lake: str, report: Report, closed: GateClosed) -> ReportDocument:
        """The document of a gate that is closed."""
        reasons = [ReasonDocument.model_validate(reason, from_attributes=True) for reason in closed.reasons]
        document = cls(lake=lake, report=report.name, pipeline=report.pipeline.name, published=False)
        return document.model_copy(update={"code": closed.code, "reasons": reasons})


class SettingDocument(BaseModel):
    """One setting: what the code says, what is in force, and the variable or file that changed it, empty for none."""

    name: str
    in_code: str
    in_force: str
    by: str


class SettingsDocument(Document):
    """`tidemark settings --json`."""

    settings: list[SettingDocument]


def _finding(finding: Finding) -> FindingDocument:
    return FindingDocument.model_validate(finding, from_attributes=True)


def _spread(spread: Spread) -> SpreadDocument:
    return SpreadDocument(
        of=list(spread.of),
        pairs=spread.pairs,
        p50_seconds=_seconds(spread.p50),
        p90_seconds=_seconds(spread.p90),
        p99_seconds=_seconds(spread.p99),
        greatest_seconds=_seconds(spread.greatest),
    )


def _outcome(outcome: Outcome) -> OutcomeDocument:
    return OutcomeDocument(
        delay_seconds=outcome.delay.total_seconds(),
        pairs=outcome.pairs,
        late_pairs=outcome.late,
        share_on_time=outcome.share_on_time,
        results=outcome.results,
        mean_wait_seconds=_seconds(outcome.mean_wait),
        max_wait_seconds=_seconds(outcome.max_wait),
        mean_open_windows=outcome.mean_open,
        max_open_windows=outcome.max_open,
    )


def _seconds(time: timedelta | None) -> float | None:
    return None if time is None else time.total_seconds()


class RetractionsDocument(Document):
    """`tidemark retractions --json`, and `tidemark retract --json`, which has none where no row is meant."""

    retractions: list[Retraction]

    @classmethod
    def of(cls, retractions: Sequence[Retraction]) -> RetractionsDocument:
        """The document of retractions."""
        return cls(retractions=[*retractions])


class EffectDocument(BaseModel):
    """The effect on one table: `numbers` by what they count, `parts` by day or key, the first of them.

    `numbers`: `taken_back` and `added` results, `keys`, `sessions`, `windows`, `calls` of a function, results that are
    `standing` now. `due` is null where nothing waits for a correction.
    """

    table: str
    summary: str
    numbers: dict[str, int]
    parts: list[dict[str, Any]]
    more: int
    due: list[date] | None


class FollowerDocument(BaseModel):
    """A stream, operator or delivery that follows what is current of the operator `of`, or looks it up."""

    kind: str
    name: str
    pipeline: str
    of: str
    looks_up: bool


class RetractionPreviewDocument(Document):
    """`tidemark retract --preview --json`: rows by day, what would change of each operator, and who follows.

    `changed_windows` and `due` are by view; `unknown` says why an operator cannot tell.
    """

    stream: str
    rows: int
    days: dict[date, int]
    changed_windows: dict[str, int]
    due: dict[str, list[date]]
    effects: list[EffectDocument]
    unknown: dict[str, str]
    followers: list[FollowerDocument]
    reports: list[str]

    @classmethod
    def of(cls, preview: RetractionPreview, reports: Sequence[str]) -> RetractionPreviewDocument:
        """The document of a preview, with the names of the reports that read what would change."""
        return cls(
            stream=preview.stream,
            rows=preview.rows,
            days=dict(preview.days),
            changed_windows={name: len(windows) for name, windows in preview.changes.items()},
            due={name: list(days) for name, days in preview.due.items()},
            effects=[
                EffectDocument(
                    table=each.table,
                    summary=each.summary,
                    numbers=dict(each.numbers),
                    parts=[dict(part) for part in each.parts],
                    more=each.more,
                    due=None if each.due is None else list(each.due),
                )
                for each in preview.effects
            ],
            unknown=dict(preview.unknown),
            followers=[FollowerDocument.model_validate(each, from_attributes=True) for each in preview.followers],
            reports=list(reports),
        )
