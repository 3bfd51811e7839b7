"""Orders on their way into a warehouse: validated, normalised, and each once; what comes twice is kept apart."""

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Rule, Stream, deduplicated

ISO_3166 = """
AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW BY BZ CA CC CD
CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO FR GA GB GD GE GF
GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE JM JO JP KE KG KH KI KM KN
KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ NA
NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI
SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI
VN VU WF WS YE YT ZA ZM ZW
"""

shop_orders = Stream(
    name="shop_orders",
    description="One row per message of the shop, whose amount is text and whose country was typed by people.",
    source=Files("landing/shop_orders"),
    format=Json("order_id string not null, customer string, country string, amount string, ordered_at timestamp"),
    derived={"iso_country": "upper(trim(country))", "total": "try_cast(amount as decimal(12, 2))"},
    event_time="ordered_at",
    clock=BoundedOutOfOrderness("1 hour"),
    rules=(
        Rule("country_known", f"iso_country in ({', '.join(map(repr, ISO_3166.split()))})"),
        Rule("amount_payable", "total >= 0"),
    ),
)

# Without a horizon: an order that comes again a year later is no other one.
each_order = deduplicated("each_order", shop_orders, ("order_id",))
pipeline = Pipeline(stream=shop_orders, views=(each_order,))
