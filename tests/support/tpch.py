"""TPC-H's tables at a small scale, its refreshes of orders, and revisions of all its other rows.

Numbers of rows, keys, and domains of values are those of the specification (clauses 1.4, 4.2.2 and 4.2.3). At a small
scale the parameters of its queries would meet no row, so some rows are drawn to be what they ask for.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from streaming.sql import QueryFile
from tests.support.sql_views import Feed, Row

Values = dict[str, Any]
KEY, TEXT, MONEY = "bigint", "varchar", "decimal(15, 2)"
SCHEMA: dict[str, dict[str, str]] = {
    "region": {"r_regionkey": KEY, "r_name": TEXT, "r_comment": TEXT},
    "nation": {"n_nationkey": KEY, "n_name": TEXT, "n_regionkey": KEY, "n_comment": TEXT},
    "supplier": {
        "s_suppkey": KEY,
        "s_name": TEXT,
        "s_address": TEXT,
        "s_nationkey": KEY,
        "s_phone": TEXT,
        "s_acctbal": MONEY,
        "s_comment": TEXT,
    },
    "customer": {
        "c_custkey": KEY,
        "c_name": TEXT,
        "c_address": TEXT,
        "c_nationkey": KEY,
        "c_phone": TEXT,
        "c_acctbal": MONEY,
        "c_mktsegment": TEXT,
        "c_comment": TEXT,
    },
    "part": {
        "p_partkey": KEY,
        "p_name": TEXT,
        "p_mfgr": TEXT,
        "p_brand": TEXT,
        "p_type": TEXT,
        "p_size": "int",
        "p_container": TEXT,
        "p_retailprice": MONEY,
        "p_comment": TEXT,
    },
    "partsupp": {
        "ps_partkey": KEY,
        "ps_suppkey": KEY,
        "ps_availqty": "int",
        "ps_supplycost": MONEY,
        "ps_comment": TEXT,
    },
    "orders": {
        "o_orderkey": KEY,
        "o_custkey": KEY,
        "o_orderstatus": TEXT,
        "o_totalprice": MONEY,
        "o_orderdate": "date",
        "o_orderpriority": TEXT,
        "o_clerk": TEXT,
        "o_shippriority": "int",
        "o_comment": TEXT,
    },
    "lineitem": {
        "l_orderkey": KEY,
        "l_partkey": KEY,
        "l_suppkey": KEY,
        "l_linenumber": "int",
        "l_quantity": MONEY,
        "l_extendedprice": MONEY,
        "l_discount": MONEY,
        "l_tax": MONEY,
        "l_returnflag": TEXT,
        "l_linestatus": TEXT,
        "l_shipdate": "date",
        "l_commitdate": "date",
        "l_receiptdate": "date",
        "l_shipinstruct": TEXT,
        "l_shipmode": TEXT,
        "l_comment": TEXT,
    },
}
KEYS: dict[str, tuple[str, ...]] = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
ROWS = {"supplier": 10_000, "part": 200_000, "partsupp": 800_000, "customer": 150_000, "orders": 1_500_000}
"""Rows of the tables that grow with the scale, at the scale 1; an order has 1 to 7 lines."""

REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
NATIONS: tuple[tuple[str, int], ...] = (
    *(("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4), ("ETHIOPIA", 0), ("FRANCE", 3)),
    *(("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2), ("IRAN", 4), ("IRAQ", 4), ("JAPAN", 2), ("JORDAN", 4)),
    *(("KENYA", 0), ("MOROCCO", 0), ("MOZAMBIQUE", 0), ("PERU", 1), ("CHINA", 2), ("ROMANIA", 3)),
    *(("SAUDI ARABIA", 4), ("VIETNAM", 2), ("RUSSIA", 3), ("UNITED KINGDOM", 3), ("UNITED STATES", 1)),
)
COLORS = [
    "almond",
    "antique",
    "azure",
    "beige",
    "black",
    "blue",
    "brown",
    "chocolate",
    "coral",
    "cream",
    "forest",
    "green",
    "ivory",
    "lime",
    "navy",
    "red",
]
TYPES = (
    ["STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"],
    ["ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"],
    ["TIN", "NICKEL", "BRASS", "STEEL", "COPPER"],
)
CONTAINERS = ["SM", "LG", "MED", "JUMBO", "WRAP"], ["CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM"]
SEGMENTS = ["AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD"]
PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
INSTRUCTIONS = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
MODES = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
WORDS = [
    "carefully",
    "final",
    "special",
    "pending",
    "requests",
    "accounts",
    "deposits",
    "packages",
    "ironic",
    "furiously",
    "express",
    "regular",
]
FIRST_DAY, LAST_DAY, TODAY = date(1992, 1, 1), date(1998, 12, 31), date(1995, 6, 17)

ASKED_OFTEN = 0.3
ASKED_NATIONS = [2, 3, 6, 7, 8, 12, 20, 6, 7, 20]
ASKED: dict[str, list[Values]] = {
    "part": [
        {"p_brand": "Brand#12", "p_container": "SM CASE", "p_size": 3},
        {"p_brand": "Brand#23", "p_container": "MED BOX", "p_size": 9},
        {"p_brand": "Brand#34", "p_container": "LG PACK", "p_size": 14},
        {"p_type": "STANDARD POLISHED BRASS", "p_size": 15},
        {"p_type": "ECONOMY ANODIZED STEEL"},
        {"p_name": "forest green lime navy red"},
        {"p_name": "forest almond azure blue brown", "p_type": "PROMO BURNISHED BRASS", "p_size": 15},
    ],
    "supplier": [{"s_nationkey": nation} for nation in ASKED_NATIONS]
    + [{"s_comment": "final Customer special Complaints"}],
    "customer": [
        {"c_mktsegment": "BUILDING"},
        *({"c_nationkey": nation, "c_acctbal": Decimal("9999.99")} for nation in ASKED_NATIONS),
    ],
    "partsupp": [{"ps_availqty": 1, "ps_supplycost": Decimal("1.00")}, {"ps_availqty": 9_999}],
    "orders": [
        {"o_orderdate": date(1995, 3, 10)},
        {"o_orderdate": date(1993, 7, 20)},
        {"o_comment": "ironic special pending requests"},
    ],
    "lineitem": [
        {"l_shipmode": "AIR", "l_shipinstruct": "DELIVER IN PERSON", "l_quantity": Decimal(quantity)}
        for quantity in (2, 10, 20)
    ]
    + [
        {"l_discount": Decimal("0.06")},
        {
            "l_shipmode": "SHIP",
            "l_shipdate": date(1994, 5, 2),
            "l_commitdate": date(1994, 5, 20),
            "l_receiptdate": date(1994, 5, 30),
            "l_linestatus": "F",
            "l_returnflag": "R",
        },
    ],
}
"""For each table values that rows have more often than by chance, since parameters of queries ask for them."""


class Tpch:
    """Rows of TPC-H's tables in `feed`: those of step 0 are the population, later steps are refreshes."""

    def __init__(self, draws: random.Random, scale: float = 0.001) -> None:
        self._draws = draws
        self.number = {table: max(1, round(rows * scale)) for table, rows in ROWS.items()}
        self.feed = Feed({table: [] for table in SCHEMA})
        self._refreshed = 0
        self._gone: list[tuple[str, Row]] = []
        for at, name in enumerate(REGIONS):
            self._add("region", {"r_regionkey": at, "r_name": name, "r_comment": self._text()}, 0)
        for at, (name, region) in enumerate(NATIONS):
            nation = {"n_nationkey": at, "n_name": name, "n_regionkey": region, "n_comment": self._text()}
            self._add("nation", nation, 0)
        for key in range(1, self.number["supplier"] + 1):
            self._add("supplier", self._supplier(key), 0)
        for key in range(1, self.number["part"] + 1):
            self._add("part", self._part(key), 0)
            for supplier in self._suppliers_of(key):
                self._add("partsupp", self._partsupp(key, supplier), 0)
        for key in range(1, self.number["customer"] + 1):
            self._add("customer", self._customer(key), 0)
        for at in range(self.number["orders"]):
            # Of 32 keys the first 8 are in the population.
            self._add_order(at // 8 * 32 + at % 8 + 1, 0)

    def refresh(self, step: int) -> None:
        """New orders, orders that go, and revisions of rows of all tables that grow."""
        for _ in range(self._draws.randint(1, 4)):
            self._add_order(self._refreshed // 8 * 32 + 8 + self._refreshed % 8 + 1, step)
            self._refreshed += 1
        orders = self.feed.standing("orders", step)
        for at in self._draws.sample(orders, self._draws.randint(1, 4)):
            key = self.feed.take_back("orders", at, step)[0]
            for line in self.feed.standing("lineitem", step):
                if self.feed.rows["lineitem"][line][0][0] == key:
                    self.feed.take_back("lineitem", line, step)
        gone, self._gone = self._gone, []
        for table, key in gone:
            self._add(table, self._row(table, *key), step)
        for table in (*ROWS, "lineitem"):
            places = self.feed.standing(table, step)
            for at in self._draws.sample(places, min(len(places), self._draws.randint(0, 8))):
                self._revise(table, at, step)

    def _revise(self, table: str, at: int, step: int) -> None:
        """Replace some values of a row; now and then take it back until the next refresh."""
        row = dict(zip(SCHEMA[table], self.feed.take_back(table, at, step), strict=True))
        key = tuple(row[name] for name in KEYS[table])
        if table == "lineitem":
            order = {"o_orderdate": row["l_shipdate"] - timedelta(self._draws.randint(1, 121))}
            other = self._line(key[0], key[1], order, row["l_partkey"], row["l_suppkey"])
        elif self._draws.random() < 0.1 and table != "orders":
            self._gone.append((table, key))
            return
        else:
            other = self._row(table, *key)
        asked = self._draws.choice(ASKED[table]) if self._draws.random() < 0.5 else {}
        changed = {*asked, *self._draws.sample(list(other), self._draws.randint(1, 3))}
        row.update({name: value for name, value in {**other, **asked}.items() if name in changed})
        if (nation := f"{table[0]}_nationkey") in changed:
            row[f"{table[0]}_phone"] = self._phone(row[nation])
        self._add(table, row, step)

    def _row(self, table: str, *key: int) -> Values:
        made: Values = getattr(self, f"_{table.removesuffix('s')}")(*key)
        return made

    def _add(self, table: str, values: Values, step: int) -> None:
        self.feed.add(table, tuple(values[name] for name in SCHEMA[table]), step)

    def _asked(self, table: str, values: Values) -> Values:
        is_asked = self._draws.random() < ASKED_OFTEN
        return {**values, **self._draws.choice(ASKED[table])} if is_asked else values

    def _text(self) -> str:
        return " ".join(self._draws.choices(WORDS, k=self._draws.randint(3, 6)))

    def _money(self, least: int, most: int) -> Decimal:
        return Decimal(self._draws.randint(least, most)).scaleb(-2)

    def _supplier(self, key: int) -> Values:
        # The nations that queries ask for come first, so that few suppliers are of all of them.
        nations = [*ASKED_NATIONS, *range(len(NATIONS))]
        row: Values = {
            "s_suppkey": key,
            "s_name": f"Supplier#{key:09}",
            "s_address": self._text(),
            "s_nationkey": nations[(key - 1) % len(nations)],
            "s_acctbal": self._money(-99_999, 999_999),
            "s_comment": self._text(),
        }
        if key == 1:
            row.update(ASKED["supplier"][-1])
        return {**row, "s_phone": self._phone(row["s_nationkey"])}

    def _customer(self, key: int) -> Values:
        row: Values = {
            "c_custkey": key,
            "c_name": f"Customer#{key:09}",
            "c_address": self._text(),
            "c_nationkey": self._draws.randrange(len(NATIONS)),
            "c_acctbal": self._money(-99_999, 999_999),
            "c_mktsegment": self._draws.choice(SEGMENTS),
            "c_comment": self._text(),
        }
        row = self._asked("customer", row)
        return {**row, "c_phone": self._phone(row["c_nationkey"])}

    def _phone(self, nation: int) -> str:
        three = (f"{self._draws.randint(100, 999)}" for _ in range(2))
        return f"{nation + 10}-{'-'.join(three)}-{self._draws.randint(1000, 9999)}"

    def _part(self, key: int) -> Values:
        maker = self._draws.randint(1, 5)
        row = {
            "p_partkey": key,
            "p_name": " ".join(self._draws.sample(COLORS, 5)),
            "p_mfgr": f"Manufacturer#{maker}",
            "p_brand": f"Brand#{maker}{self._draws.randint(1, 5)}",
            "p_type": " ".join(self._draws.choice(each) for each in TYPES),
            "p_size": self._draws.randint(1, 50),
            "p_container": " ".join(self._draws.choice(each) for each in CONTAINERS),
            "p_retailprice": _retail_price(key),
            "p_comment": self._text(),
        }
        return self._asked("part", row)

    def _suppliers_of(self, part: int) -> Iterator[int]:
        # The specification's distance grows with the part, which at a small scale would name a supplier twice.
        suppliers = self.number["supplier"]
        distance = suppliers // 4 + (part - 1) // suppliers % 2
        return ((part + at * distance) % suppliers + 1 for at in range(4))

    def _partsupp(self, part: int, supplier: int) -> Values:
        row = {
            "ps_partkey": part,
            "ps_suppkey": supplier,
            "ps_availqty": self._draws.randint(1, 9_999),
            "ps_supplycost": self._money(100, 100_000),
            "ps_comment": self._text(),
        }
        return self._asked("partsupp", row)

    def _add_order(self, key: int, step: int) -> None:
        order = self._order(key)
        is_large = self._draws.random() < (0.15 if step else 0.02)
        lines = []
        for number in range(1, 8 if is_large else self._draws.randint(2, 8)):
            part = self._draws.randint(1, self.number["part"])
            supplier = self._draws.choice(list(self._suppliers_of(part)))
            line = self._line(key, number, order, part, supplier)
            lines.append(_priced({**line, "l_quantity": Decimal(self._draws.randint(40, 50))}) if is_large else line)
        states = {line["l_linestatus"] for line in lines}
        total = sum(line["l_extendedprice"] * (1 + line["l_tax"]) * (1 - line["l_discount"]) for line in lines)
        order["o_orderstatus"] = states.pop() if len(states) == 1 else "P"
        order["o_totalprice"] = Decimal(total).quantize(Decimal("0.01"))
        self._add("orders", order, step)
        for line in lines:
            self._add("lineitem", line, step)

    def _order(self, key: int) -> Values:
        # A third of the customers never orders.
        customer = self._draws.choice([each for each in range(1, self.number["customer"] + 1) if each % 3])
        last = (LAST_DAY - FIRST_DAY).days - 151
        row = {
            "o_orderkey": key,
            "o_custkey": customer,
            "o_orderstatus": self._draws.choice("FOP"),
            "o_totalprice": self._money(90_000, 50_000_000),
            "o_orderdate": FIRST_DAY + timedelta(self._draws.randint(0, last)),
            "o_orderpriority": self._draws.choice(PRIORITIES),
            "o_clerk": f"Clerk#{self._draws.randint(1, 1_000):09}",
            "o_shippriority": 0,
            "o_comment": self._text(),
        }
        return self._asked("orders", row) if self._draws.random() < 0.2 else row

    def _line(self, order_key: int, number: int, order: Values, part: int, supplier: int) -> Values:
        shipped = order["o_orderdate"] + timedelta(self._draws.randint(1, 121))
        received = shipped + timedelta(self._draws.randint(1, 30))
        row = {
            "l_orderkey": order_key,
            "l_partkey": part,
            "l_suppkey": supplier,
            "l_linenumber": number,
            "l_quantity": Decimal(self._draws.randint(1, 50)),
            "l_discount": self._money(0, 10),
            "l_tax": self._money(0, 8),
            "l_returnflag": self._draws.choice("RA") if received <= TODAY else "N",
            "l_linestatus": "O" if shipped > TODAY else "F",
            "l_shipdate": shipped,
            "l_commitdate": order["o_orderdate"] + timedelta(self._draws.randint(30, 90)),
            "l_receiptdate": received,
            "l_shipinstruct": self._draws.choice(INSTRUCTIONS),
            "l_shipmode": self._draws.choice(MODES),
            "l_comment": self._text(),
        }
        return _priced(self._asked("lineitem", row))


def _priced(line: Values) -> Values:
    return {**line, "l_extendedprice": line["l_quantity"] * _retail_price(line["l_partkey"])}


def _retail_price(part: int) -> Decimal:
    return Decimal(90_000 + part // 10 % 20_001 + 100 * (part % 1_000)).scaleb(-2)


def tpch(seed: int, steps: int, scale: float = 0.001) -> Feed:
    """The population, and as many refreshes."""
    made = Tpch(random.Random(seed), scale)
    for step in range(1, steps + 1):
        made.refresh(step)
    return made.feed


FOLDER = Path(__file__).parents[1] / "streaming" / "sql" / "tpch"
ORDERS_OF_CUSTOMERS = "q13_orders_of_customers"
"""The view that that of query 13 reads."""


def query_files() -> dict[str, QueryFile]:
    """The queries as files of views, by their names."""
    return {path.stem: QueryFile.read(path) for path in sorted(FOLDER.glob("*.sql"))}


def specified(name: str) -> str:
    """The text of a query over tables alone, which the file of a view may have otherwise."""
    path = FOLDER / "specification" / f"{name}.sql"
    return path.read_text() if path.exists() else query_files()[name].sql
