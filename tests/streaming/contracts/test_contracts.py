"""Data contracts: what a file of the standard asks becomes a stream, and a stream becomes such a file."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft201909Validator

from quality.find import log_suite
from streaming import (
    Ascending,
    BoundedOutOfOrderness,
    Debezium,
    Files,
    Freshness,
    Json,
    Pipeline,
    Rule,
    Stream,
    Tumbling,
    Windowed,
    agg,
)
from streaming.base import ContractError
from streaming.base.intervals import interval
from streaming.contracts import differences, is_compatible, read_contract, renamed_terms, written_contract
from streaming.declare import affected_readers, terms_of_operator, terms_of_stream

FILE = Path(__file__).parents[2] / "support" / "contracts" / "orders.odcs.yaml"
SOURCE, CLOCK = Files("landing/orders"), BoundedOutOfOrderness("1 hour")
Document = dict[str, Any]


def declared(path: Path = FILE, **more: Any) -> Stream:
    return Stream.of_contract(path, source=SOURCE, clock=CLOCK, **more)


@pytest.fixture
def changed(tmp_path: Path) -> Callable[[Callable[[Document], object]], Path]:
    """The file after something in it was changed."""

    def write(change: Callable[[Document], object]) -> Path:
        document = yaml.safe_load(FILE.read_text())
        change(document)
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.odcs.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    return write


def column(document: Document, name: str) -> Document:
    return next(each for each in document["schema"][0]["properties"] if each["name"] == name)


def test_columns_have_the_types_of_the_file_nested_ones_too_and_say_what_is_required() -> None:
    told = {each.name: (each.type, each.required) for each in declared().format.columns}
    assert told == {
        "order_id": ("string", True),
        "placed_at": ("timestamp", True),
        "country": ("string", False),
        "amount": ("decimal(10, 2)", False),
        "token": ("string", False),
        "customer": ("struct<email: string not null, vip: boolean>", False),
        "lines": ("array<struct<sku: string not null, pieces: int>>", False),
        "attributes": ("map<string, string>", False),
    }
    assert declared().format.columns[0].comment == "Number of the order. Such as: A-1, A-2."


def test_what_is_about_a_row_is_a_rule_and_what_is_about_all_rows_an_expectation() -> None:
    stream = declared()
    assert {rule.name: rule.on_violation for rule in stream.rules} == {
        "order_id_pattern": "reject",
        "country_max_length": "reject",
        "country_invalid_values": "reject",
        "amount_minimum": "reject",
        "token_is_uuid": "reject",
        "customer_email_max_length": "reject",
        "free_orders": "warn",
    }
    levels = {each.name: each.level for each in log_suite(stream).expectations[4:]}
    assert levels == {
        "unique_order_id": "error",
        "unique_token": "error",
        "country_null_values": "warn",
        "row_count": "error",
        "mean_amount": "error",
    }


@pytest.mark.parametrize(
    ("option", "more", "rule", "check"),
    [
        ({"mustBe": 0}, {}, True, False),
        ({"mustBeLessThan": 1}, {}, True, False),
        ({"mustBeLessThan": 1}, {"unit": "rows"}, True, False),
        # Of a hundred thousand rows some may be null.
        ({"mustBeLessThan": 1}, {"unit": "percent"}, False, True),
        ({"mustBe": 0}, {"unit": "percent"}, False, True),
    ],
)
@pytest.mark.parametrize("metric", ["nullValues", "missingValues", "invalidValues"])
def test_less_than_one_row_is_a_rule_and_less_than_one_percent_is_an_expectation(
    metric: str,
    option: Document,
    more: Document,
    rule: bool,
    check: bool,
    changed: Callable[[Callable[[Document], object]], Path],
) -> None:
    quality = {"name": "vip only", "metric": metric, "arguments": {"validValues": ["x"]}, **option, **more}
    stream = declared(changed(lambda d: column(d, "token").update(quality=[quality])))
    assert stream.contract is not None
    assert ("vip_only" in {each.name for each in stream.rules}) == rule
    assert ("vip_only" in {each.name for each in stream.contract.checks}) == check


@pytest.mark.parametrize(
    ("physical", "logical", "type_"),
    [
        ("struct<CustomerId string, Of: array<struct<`No 1`: INT>>>", "object", None),
        ("STRUCT<CustomerId STRING, Of ARRAY<STRUCT<`No 1` INT>>>", "object", None),
        ("ARRAY<TIMESTAMP_NTZ>", "array", "array<timestamp>"),
        ("timestamp_ntz", "timestamp", "timestamp"),
        ("NUMBER", "number", "decimal(38, 18)"),
        ("NUMBER", "integer", "decimal(38, 0)"),
        ("NUMERIC(12)", "integer", "decimal(12, 0)"),
        ("map<string, array<decimal(9, 2)>>", None, "map<string, array<decimal(9, 2)>>"),
    ],
)
def test_a_physical_type_is_carried_over_with_the_case_of_its_fields(
    physical: str, logical: str | None, type_: str | None, changed: Callable[[Callable[[Document], object]], Path]
) -> None:
    more = {"name": "note", "physicalType": physical, **({"logicalType": logical} if logical else {})}
    (note,) = declared(changed(lambda d: d["schema"][0]["properties"].append(more))).format.columns[-1:]
    assert note.type == (type_ or "struct<CustomerId: string, Of: array<struct<`No 1`: int>>>")


@pytest.mark.parametrize(
    ("physical", "options", "rules"),
    [
        ("VARCHAR(3)", {}, {"note_max_length": "`note` is null or length(`note`) <= 3"}),
        ("char(2)", {}, {"note_max_length": "`note` is null or length(`note`) <= 2"}),
        ("character varying(20)", {"maxLength": 9}, {"note_max_length": "`note` is null or length(`note`) <= 9"}),
        ("VARCHAR2(3 CHAR)", {"maxLength": 9}, {"note_max_length": "`note` is null or length(`note`) <= 3"}),
        ("bpchar(4)", {}, {"note_max_length": "`note` is null or length(`note`) <= 4"}),
        ("TEXT", {}, {}),
        ("varchar", {}, {}),
        ("NVARCHAR(MAX)", {}, {}),
    ],
)
def test_the_width_of_a_text_is_a_rule(
    physical: str,
    options: Document,
    rules: dict[str, str],
    changed: Callable[[Callable[[Document], object]], Path],
) -> None:
    more = {"name": "note", "physicalType": physical, "logicalType": "string", "logicalTypeOptions": options}
    stream = declared(changed(lambda d: d["schema"][0]["properties"].append(more)))
    assert {each.name: each.condition for each in stream.rules if each.name.startswith("note")} == rules
    stream = declared(changed(lambda d: column(d, "customer")["properties"].append(more)))
    found = {each.name: each.condition for each in stream.rules if each.name.startswith("customer_note")}
    assert found == {f"customer_{name}": text.replace("`note`", "`customer`.`note`") for name, text in rules.items()}


@pytest.mark.parametrize(
    ("format_", "physical", "text"),
    [
        ("u8", None, "between 0 and 255"),
        ("u32", "BIGINT", "between 0 and 4294967295"),
        ("i32", "NUMBER(12)", "between -2147483648 and 2147483647"),
        ("i32", None, None),
        ("i64", "INTEGER", None),
    ],
)
def test_the_format_of_an_integer_is_a_rule_where_its_column_has_other_numbers_too(
    format_: str, physical: str | None, text: str | None, changed: Callable[[Callable[[Document], object]], Path]
) -> None:
    more = {"name": "note", "logicalType": "integer", "logicalTypeOptions": {"format": format_}}
    more |= {"physicalType": physical} if physical else {}
    stream = declared(changed(lambda d: d["schema"][0]["properties"].append(more)))
    found = {each.name: each.condition for each in stream.rules if each.name.startswith("note")}
    assert found == ({f"note_is_{format_}": f"`note` is null or `note` {text}"} if text else {})


def test_service_levels_owners_and_description_are_those_of_the_stream() -> None:
    stream = declared()
    assert (stream.event_time, stream.fresh_within) == ("placed_at", "4 hours")
    assert stream.retention is not None and interval(stream.retention) == timedelta(days=730)
    assert stream.description == "Orders of all shops."
    assert stream.contract is not None
    assert stream.contract.owners == ("team:Sales", "ada@shop.example")
    assert str(stream.contract) == "orders 2.1.0 (active)"


def test_an_instant_by_its_physical_type_alone_is_the_event_time_too(
    changed: Callable[[Callable[[Document], object]], Path],
) -> None:
    assert declared(changed(lambda d: column(d, "placed_at").pop("logicalType"))).event_time == "placed_at"


def test_what_changes_nothing_is_told_by_its_place() -> None:
    contract = declared().contract
    assert contract is not None
    assert [each.partition(":")[0] for each in contract.untaken] == [
        "description.usage",
        "domain",
        "orders.country.classification",
        "orders.quality[2]",
        "price",
        "slaProperties.availability",
        "team.members[1]",
    ]


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (
            "orders.token.logicalTypeOptions.format",
            lambda d: column(d, "token")["logicalTypeOptions"].update(format="iban"),
        ),
        ("orders.amount.physicalType", lambda d: column(d, "amount").update(physicalType="GEOMETRY")),
        ("orders.amount.logicalType", lambda d: column(d, "amount").update(physicalType="TEXT", logicalTypeOptions={})),
        ("orders.token", lambda d: column(d, "token").update(logicalType="time", logicalTypeOptions={})),
        (
            "orders.quality[0]",
            lambda d: d["schema"][0].update(quality=[{"type": "custom", "engine": "soda", "implementation": "x"}]),
        ),
        ("orders.quality[0]", lambda d: d["schema"][0].update(quality=[{"metric": "nullValues", "mustBe": 0}])),
        (
            "orders.quality[0]",
            lambda d: d["schema"][0].update(quality=[{"metric": "duplicateValues", "mustBe": 0, "unit": "share"}]),
        ),
        ("orders.lines.items.sku.unique", lambda d: column(d, "lines")["items"]["properties"][0].update(unique=True)),
        ("orders.lines.items.required", lambda d: column(d, "lines")["items"].update(required=True)),
        (
            "orders.lines.items.sku.physicalName",
            lambda d: column(d, "lines")["items"]["properties"][0].update(physicalName="SKU"),
        ),
        ("orders.customer.vip.physicalName", lambda d: column(d, "customer")["properties"][1].update(physicalName="v")),
        (
            "orders.lines.items.sku.physicalType",
            lambda d: column(d, "lines")["items"]["properties"][0].update(physicalType="VARCHAR(9)"),
        ),
        (
            "orders.lines.items.sku.logicalTypeOptions",
            lambda d: column(d, "lines")["items"]["properties"][0].update(logicalTypeOptions={"format": "uuid"}),
        ),
        (
            "orders.lines.items.pieces.logicalTypeOptions",
            lambda d: column(d, "lines")["items"]["properties"][1].update(logicalTypeOptions={"format": "u8"}),
        ),
        (
            # An array of structs in an array of structs.
            "orders.lines.items.parts.items.no.unique",
            lambda d: column(d, "lines")["items"]["properties"].append(
                {
                    "name": "parts",
                    "logicalType": "array",
                    "items": {
                        "logicalType": "object",
                        "properties": [{"name": "no", "logicalType": "string", "unique": True}],
                    },
                }
            ),
        ),
        (
            "orders.attributes.physicalType",
            lambda d: column(d, "attributes").update(physicalType="map<string, char(2)>"),
        ),
        (
            "orders.attributes.map.key.enum",
            lambda d: (
                column(d, "attributes").pop("physicalType"),
                column(d, "attributes").update(
                    logicalType="map",
                    map={
                        "key": {"logicalType": "string", "enum": [{"value": "a"}]},
                        "value": {"logicalType": "string"},
                    },
                ),
            ),
        ),
        ("orders.amount.logicalType", lambda d: column(d, "amount").update(logicalType="integer")),
        (
            "orders.quality[0]",
            lambda d: d["schema"][0].update(
                quality=[
                    {"type": "sql", "query": "SELECT count(*) FROM orders JOIN returns USING (order_id)", "mustBe": 0}
                ]
            ),
        ),
        ("slaProperties.latency", lambda d: d["slaProperties"][0].update(value="soon")),
        ("slaProperties.latency", lambda d: d["slaProperties"][0].update(element="Orders.placed_at")),
        (
            "slaProperties.retention",
            lambda d: d["slaProperties"].append(
                {"property": "retention", "value": 1, "unit": "y", "element": "orders"}
            ),
        ),
        ("slaProperties.latency", lambda d: d["slaProperties"][0].update(element="orders.placedAt")),
        ("orders.customer.physicalType", lambda d: column(d, "customer").update(physicalType="string")),
        ("orders.customer.physicalType", lambda d: column(d, "customer").update(physicalType="struct<email: string>")),
        ("orders.lines.physicalType", lambda d: column(d, "lines").update(physicalType="MAP")),
    ],
)
def test_what_cannot_be_followed_is_refused_by_its_place_unless_it_is_left_out_on_purpose(
    place: str, change: Callable[[Document], object], changed: Callable[[Callable[[Document], object]], Path]
) -> None:
    path = changed(change)
    with pytest.raises(ContractError) as raised:
        declared(path)
    assert raised.value.choices == (place,) and place in str(raised.value)
    more = {"event_time": "placed_at"} if place == "slaProperties.latency" else {}
    assert declared(path, without=(place,), **more).name == "orders"
    with pytest.raises(ContractError, match="nothing of it to leave out"):
        declared(path, without=(place, "orders.nothing"))


@pytest.mark.parametrize("physical", ["STRUCT<email: VARCHAR(40), vip: BOOLEAN>", "RECORD", "jsonb"])
def test_a_physical_type_that_says_what_the_parts_say_is_taken(
    physical: str, changed: Callable[[Callable[[Document], object]], Path]
) -> None:
    path = changed(lambda d: column(d, "customer").update(physicalType=physical))
    assert declared(path).format == declared().format


@pytest.mark.parametrize(
    ("physical", "items"),
    [
        ("array<int>", {"logicalType": "integer"}),
        ("ARRAY(NUMBER)", {"logicalType": "integer"}),
        ("ARRAY(NUMBER)", {"logicalType": "integer", "logicalTypeOptions": {"format": "i32"}}),
        ("ARRAY(NUMBER)", {"logicalType": "number", "physicalType": "NUMBER(12, 2)"}),
        ("array<varchar>", {"logicalType": "string", "physicalType": "text"}),
        ("array<int>", {"logicalType": "integer", "logicalTypeOptions": {"format": "i32"}}),
        (
            "ARRAY<STRUCT<A: INT, B: ARRAY<DATE>>>",
            {
                "logicalType": "object",
                "properties": [
                    {"name": "a", "logicalType": "integer"},
                    {"name": "b", "logicalType": "array", "items": {"logicalType": "date"}},
                ],
            },
        ),
    ],
)
def test_a_physical_type_may_say_more_than_the_logical_types_of_its_parts(
    physical: str, items: Document, changed: Callable[[Callable[[Document], object]], Path]
) -> None:
    def change(document: Document) -> None:
        column(document, "lines").update(physicalType=physical, items=items)

    def without_physical(document: Document) -> None:
        column(document, "lines").pop("physicalType", None)
        column(document, "lines").update(items=items)

    taken = declared(changed(change)).format
    assert taken == declared(changed(without_physical)).format


@pytest.mark.parametrize(
    ("physical", "items"),
    [
        ("array<string>", {"logicalType": "integer"}),
        ("array<int>", {"logicalType": "integer", "logicalTypeOptions": {"format": "i64"}}),
        ("array<int>", {"logicalType": "integer", "physicalType": "bigint"}),
        ("array<decimal(9, 2)>", {"logicalType": "number", "physicalType": "decimal(12, 2)"}),
        ("array<array<int>>", {"logicalType": "integer"}),
        ("array<struct<a: int>>", {"logicalType": "object", "properties": [{"name": "b", "logicalType": "integer"}]}),
    ],
)
def test_a_physical_type_that_its_parts_contradict_is_refused(
    physical: str, items: Document, changed: Callable[[Callable[[Document], object]], Path]
) -> None:
    with pytest.raises(ContractError) as raised:
        declared(changed(lambda d: column(d, "lines").update(physicalType=physical, items=items)))
    assert raised.value.choices == ("orders.lines.physicalType",)


@pytest.mark.parametrize(
    ("place", "change"),
    [
        ("orders.Country", lambda d: d["schema"][0]["properties"].append({**column(d, "country"), "name": "Country"})),
        (
            "orders.customer.VIP",
            lambda d: column(d, "customer")["properties"].append({"name": "VIP", "logicalType": "boolean"}),
        ),
        (
            "orders.lines.items.SKU",
            lambda d: column(d, "lines")["items"]["properties"].append({"name": "SKU", "logicalType": "string"}),
        ),
    ],
)
def test_names_that_differ_in_case_alone_are_refused(
    place: str, change: Callable[[Document], object], changed: Callable[[Callable[[Document], object]], Path]
) -> None:
    with pytest.raises(ContractError, match=f"{place}: '{place.rpartition('.')[2].lower()}' is there, too") as raised:
        declared(changed(change))
    assert raised.value.choices and place in raised.value.choices


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "is no YAML"),
        ("apiVersion: v2.2.2", r"apiVersion 'v2.2.2'.*none of the Open Data Contract Standard 3"),
        ("just text", "has apiVersion None"),
        ("apiVersion: v3.1.0\nkind: DataContract\nid: x\nversion: 1\n", "version: 1 is not of type 'string'"),
        ("apiVersion: v3.1.0\nkind: DataContract\nid: x\nversion: '1'\nsla: []\n", "Unevaluated|Additional"),
        ("apiVersion: v3.1.0\nkind: DataContract\nid: x\nversion: '1'\n", "has no table: none"),
    ],
)
def test_a_file_that_is_no_contract_is_refused_with_what_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "x.odcs.yaml"
    path.write_text(text)
    with pytest.raises(ContractError, match=says):
        declared(path)
    with pytest.raises(ContractError, match="cannot be read: No such file"):
        declared(tmp_path / "none.yaml")


def test_of_several_tables_one_is_named(changed: Callable[[Callable[[Document], object]], Path]) -> None:
    path = changed(lambda d: d["schema"].append({**d["schema"][0], "name": "returns", "quality": []}))
    with pytest.raises(ContractError) as raised:
        declared(path)
    assert raised.value.choices == ("orders", "returns")
    assert declared(path, table="returns", event_time="placed_at").name == "returns"


def test_a_primary_key_is_the_key_where_something_tells_the_newest_revision(
    changed: Callable[[Callable[[Document], object]], Path],
) -> None:
    def plain(document: Document) -> None:
        column(document, "token").pop("unique")
        document["slaProperties"] = document["slaProperties"][:1]

    stream = declared(changed(plain), sequence="placed_at", deletes="amount is null")
    assert stream.key == ("order_id",)
    # A row that deletes needs its key alone, so what is required is a rule, which it need not keep.
    assert [rule.name for rule in stream.rules][:2] == ["order_id_required", "placed_at_required"]
    assert not any(each.required for each in stream.format.columns)
    with pytest.raises(ContractError, match="'token' unique, and stream 'orders' has a key"):
        declared(changed(lambda d: d.update(slaProperties=d["slaProperties"][:1])), sequence="placed_at")
    assert declared(changed(plain), format=lambda ddl: Debezium(Json(ddl))).key == ("order_id",)


def test_names_that_payloads_have_are_fields_of_the_format(
    changed: Callable[[Callable[[Document], object]], Path],
) -> None:
    stream = declared(changed(lambda d: column(d, "order_id").update(physicalName="_id")))
    assert isinstance(stream.format, Json) and stream.format.fields == {"order_id": "_id"}


def test_a_decimal_without_digits_has_those_of_spark_in_the_contract_that_is_written(tmp_path: Path) -> None:
    columns = "at timestamp, paid decimal, lines array<struct<Price: decimal(5)>>"
    stream = Stream(name="paid", source=SOURCE, format=Json(columns), event_time="at", clock=CLOCK)
    again = reread(stream, tmp_path / "paid.yaml")
    assert [each.type for each in again.format.columns[1:]] == [
        "decimal(10, 0)",
        "array<struct<Price: decimal(5, 0)>>",
    ]
    assert differences(terms_of_stream(stream), read_contract(tmp_path / "paid.yaml")) == (
        differences(terms_of_stream(stream), terms_of_stream(again))
    )
    assert all(each.breaks == "nobody" for each in differences(terms_of_stream(stream), terms_of_stream(again)))


def reread(stream: Stream, path: Path, **more: Any) -> Stream:
    """The stream that is declared by its own contract."""
    text = written_contract(terms_of_stream(stream, "team:data"))
    path.write_text(text)
    return Stream.of_contract(path, source=stream.source, clock=stream.clock, **more)


def test_a_stream_of_a_contract_is_declared_again_by_the_contract_that_is_written_of_it(tmp_path: Path) -> None:
    path = tmp_path / "again.yaml"
    for stream in (declared(name="others"), declared()):
        assert reread(stream, path) == stream
    schema = json.loads(files("open_data_contract_standard").joinpath("schema.json").read_text(encoding="utf-8"))
    assert [*Draft201909Validator(schema).iter_errors(yaml.safe_load(path.read_text()))] == []


@pytest.mark.parametrize("draws", [4, pytest.param(60, marks=pytest.mark.long)])
def test_any_stream_is_declared_again_by_the_contract_that_is_written_of_it(tmp_path: Path, draws: int) -> None:
    """Drawn declarations: types at any depth, comments, rules, keys, freshness by value, renamed fields."""
    draw = random.Random(draws)
    scalars = ["string", "bigint", "int", "double", "boolean", "date", "timestamp", "decimal(12, 3)"]

    def type_(depth: int) -> str:
        kind = draw.choice(["scalar", "scalar", "array", "struct", "map"]) if depth else "scalar"
        if kind == "array":
            return f"array<{type_(depth - 1)}>"
        if kind == "map":
            return f"map<string, {type_(depth - 1)}>"
        if kind == "struct":
            parts = (
                f"p{n}: {type_(depth - 1)}{draw.choice(['', ' not null'])}{draw.choice(['', comment('{x} part')])}"
                for n in range(draw.randint(1, 3))
            )
            return f"struct<{', '.join(parts)}>"
        return draw.choice(scalars)

    def comment(text: str) -> str:
        return f" comment '{text} it\\'s 5 % [EUR]: \\\\d'"

    for number in range(draws):
        is_keyed = draw.random() < 0.3
        required = "" if is_keyed else " not null"
        parts = ["at timestamp", "tenant string", "n bigint"]
        parts += [f"c{n} {type_(3)}{draw.choice(['', required])}{draw.choice(['', comment('c')])}" for n in range(3)]
        conditions = [
            "n > 0",
            "tenant in ('a', 'b''c') or n is null",
            "n % 7 <> 3 and at is not null",
            "tenant rlike '^{a,2}$'",
        ]
        stream = Stream(
            name=f"drawn_{number}",
            source=SOURCE,
            format=Json(", ".join(parts), fields=draw.choice([{}, {"n": "No. 1"}])),
            event_time="at",
            clock=Ascending(),
            rules=tuple(Rule(f"r{n}", text) for n, text in enumerate(draw.sample(conditions, draw.randint(0, 4)))),
            description=draw.choice(["", "Text: with a colon, ünïcode and 'quotes'."]),
            retention=None if is_keyed else draw.choice([None, "400 days"]),
            fresh_within=draw.choice([None, "90 minutes", Freshness("2 hours", by=("tenant", "n"), named=3)]),
            key=("n",) if is_keyed else (),
            sequence="at" if is_keyed else None,
        )
        again = reread(stream, tmp_path / "drawn.yaml", **({"sequence": "at"} if is_keyed else {}))
        assert again.contract is not None and again.contract.owners == ("team:data",)
        assert replace(again, contract=None) == stream, stream


BEFORE = read_contract(FILE)


def test_a_stream_of_another_name_asks_for_what_its_contract_does() -> None:
    stream = declared(name="others")
    assert stream.contract is not None
    assert all("FROM others" in check.query and check.table == "others" for check in stream.contract.checks)
    asked = renamed_terms(BEFORE, "others")
    assert differences(terms_of_stream(stream), asked) == ()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: None, []),
        (
            lambda d: d["schema"][0]["properties"].pop(3),
            # Its rules and checks have gone with it.
            [("readers", "column 'amount' is gone")],
        ),
        (lambda d: column(d, "amount").update(physicalType="DECIMAL(14,2)"), [("nobody", "decimal(14, 2), and was")]),
        (
            lambda d: column(d, "amount").update(physicalType="DECIMAL(10,4)"),
            [("readers", "decimal(10, 4), and was"), ("writers", "values of the old type may be rejected")],
        ),
        (lambda d: column(d, "token").update(required=True), [("writers", "column 'token' is required")]),
        (lambda d: column(d, "placed_at").update(required=False), [("readers", "'placed_at' may be null")]),
        (
            lambda d: d["schema"][0]["properties"].append({"name": "note", "logicalType": "string"}),
            [("nobody", "column 'note' string is new")],
        ),
        (
            lambda d: d["schema"][0]["properties"].append({"name": "note", "logicalType": "string", "required": True}),
            [("writers", "new, and required")],
        ),
        (
            lambda d: column(d, "lines")["items"]["properties"][1].update(logicalTypeOptions={"format": "i64"}),
            [("nobody", "which has all its values")],
        ),
        (
            lambda d: column(d, "lines")["items"]["properties"][0].update(name="SKU"),
            [("readers", "'lines' is array<struct<SKU: string not null"), ("writers", "'lines'")],
        ),
        (
            lambda d: column(d, "lines")["items"]["properties"][1].update(required=True),
            [("writers", "'lines' is")],
        ),
        (
            lambda d: column(d, "lines")["items"]["properties"][0].update(required=False),
            [("readers", "'lines' is")],
        ),
        (
            lambda d: column(d, "lines")["items"]["properties"].append({"name": "note", "logicalType": "string"}),
            [("nobody", "which has all its values")],
        ),
        (
            lambda d: column(d, "customer")["properties"].append(
                {"name": "id", "logicalType": "string", "required": True}
            ),
            [("writers", "'customer' is")],
        ),
        (
            lambda d: column(d, "order_id").update(physicalName="_id"),
            [("writers", "'order_id' is read from the field '_id' of a payload, and was from 'order_id'")],
        ),
        (
            lambda d: d["schema"][0]["quality"][0].update(severity="warning"),
            [("readers", "check 'row_count' only warns")],
        ),
        (
            lambda d: column(d, "country")["quality"][1].pop("severity"),
            [("writers", "check 'country_null_values' closes the gate")],
        ),
        (
            lambda d: d["schema"][0]["quality"].append(
                {"metric": "rowCount", "mustBeLessThan": 9, "name": "few", "severity": "info"}
            ),
            [("nobody", "check 'few' is new")],
        ),
        (
            lambda d: column(d, "lines")["items"]["properties"].pop(0),
            [("readers", "'lines' is"), ("writers", "'lines'")],
        ),
        # The same, said in another way.
        (
            lambda d: (
                column(d, "placed_at").pop("required"),
                column(d, "placed_at").update(quality=[{"metric": "nullValues", "mustBe": 0}]),
            ),
            [],
        ),
        (lambda d: column(d, "token").pop("unique"), [("readers", "'token' need not be unique")]),
        (lambda d: column(d, "country")["quality"].pop(0), [("readers", "'country_invalid_values' is gone")]),
        (lambda d: column(d, "order_id").pop("primaryKey"), [("readers", "the primary key is none, and was order_id")]),
        (lambda d: d["schema"][0]["quality"].pop(0), [("readers", "check 'row_count' is gone")]),
        (lambda d: d["slaProperties"][0].update(value=5), [("readers", "the freshness is 5 hours, and was 4 hours")]),
        (lambda d: d["slaProperties"][0].update(value=240, unit="min"), []),
        (lambda d: d["slaProperties"][1].update(value=1), [("readers", "the retention is 365 days")]),
        (lambda d: d["slaProperties"][1].update(value=3), [("nobody", "the retention is 1095 days")]),
        (lambda d: d.update(status="deprecated"), [("readers", "the status is deprecated")]),
        (lambda d: d["team"]["members"].pop(0), [("nobody", "the owners are team:Sales, and were")]),
        (lambda d: column(d, "amount").update(description="What was paid."), []),
    ],
)
def test_each_change_says_whom_it_breaks(
    change: Callable[[Document], object],
    told: list[tuple[str, str]],
    changed: Callable[[Callable[[Document], object]], Path],
) -> None:
    found = differences(BEFORE, read_contract(changed(change)))
    assert [each.breaks for each in found] == [breaks for breaks, _ in told], found
    assert all(words in each.text for each, (_, words) in zip(found, told, strict=True)), found
    assert is_compatible(found) == all(breaks == "nobody" for breaks, _ in told)


def test_a_column_that_is_read_from_its_own_field_again_breaks_writers(
    changed: Callable[[Callable[[Document], object]], Path],
) -> None:
    renamed = read_contract(changed(lambda d: column(d, "order_id").update(physicalName="_id")))
    (found,) = differences(renamed, BEFORE)
    assert (found.breaks, found.column) == ("writers", "order_id")
    assert found.text == "column 'order_id' is read from the field 'order_id' of a payload, and was from '_id'"
    assert differences(renamed, renamed) == ()


def test_a_column_that_is_gone_names_the_views_that_are_made_of_it_and_no_others() -> None:
    orders = declared()
    takings = Windowed("takings", orders, Tumbling("1 day"), {"sum": agg.sum("amount")}, by=("country",))
    large = Windowed("large", orders, Tumbling("1 day"), {"rows": agg.count()}, where="amount > 100")
    vips = Windowed("vips", orders, Tumbling("1 day"), {"rows": agg.count()}, where="customer.vip")
    pipelines = [Pipeline(orders, (takings, large, vips))]

    def readers(column: str) -> set[str]:
        after = replace(terms_of_stream(orders), columns=tuple(c for c in orders.format.columns if c.name != column))
        (gone,) = (each for each in differences(terms_of_stream(orders), after) if each.is_gone)
        return {each.name for each in affected_readers(pipelines, orders, gone)}

    # The stream itself is named where its own rules need the column.
    assert readers("amount") == {"orders", "takings", "large"}
    assert readers("customer") == {"orders", "vips"}
    assert readers("country") == {"orders", "takings"}
    assert readers("attributes") == set()


def test_a_view_has_a_contract_of_its_own_by_which_a_stream_may_follow_it(tmp_path: Path) -> None:
    orders = declared()
    days = Windowed("days", orders, Tumbling("1 day"), {"rows": agg.count()}, by=("country",), fresh_within="1 day")
    with pytest.raises(ContractError, match="'rows', whose type only its table tells"):
        terms_of_operator(days, "team:data")
    path = tmp_path / "days.odcs.yaml"
    path.write_text(written_contract(terms_of_operator(days, "team:data", {"rows": "bigint"})))
    follower = Stream.of_contract(path, source=Files("landing/days"), clock=CLOCK)
    assert {each.name: each.type for each in follower.format.columns} == {
        "country": "string",
        "window_start": "timestamp",
        "window_end": "timestamp",
        "rows": "bigint",
    }
    assert (follower.event_time, follower.fresh_within) == ("window_end", "1 day")
    assert follower.contract is not None and follower.contract.key == days.result_key
