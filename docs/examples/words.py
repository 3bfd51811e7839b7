"""Lines of text: words, keywords, upper case, and lines that are copied or left out."""

from streaming import BoundedOutOfOrderness, Files, Pipeline, Selected, Side, Stream, Text

lines = Stream(
    name="lines",
    description="One row per line, at the time at which it was read.",
    source=Files("landing/lines"),
    format=Text("text"),
    derived={"read_at": "_ingested_at"},
    event_time="read_at",
    clock=BoundedOutOfOrderness("0 seconds"),
)

_ONLY_SPACES = "text <> '' and rtrim(text) = ''"

words = Selected(
    name="words",
    description="A row per token between single spaces; empty ones at the end are dropped, others are kept.",
    of=lines,
    explode={"word": f"case when {_ONLY_SPACES} then array() else split(rtrim(text), ' ') end"},
    select=("word",),
)

upper_case = Selected(name="upper_case", of=lines, select={"text": "upper(text)"})

copies = Selected(
    name="copies",
    description="White once, black twice, anything else never.",
    of=lines,
    explode={"copy": "case text when 'white' then array(1) when 'black' then array(1, 2) else array() end"},
    select=("text",),
    sides={"white": Side(select=("text",), where="text = 'white'")},
)


def containing(keyword: str) -> Selected:
    """The lines that contain the keyword, as it is written."""
    return Selected(name=f"with_{keyword}", of=lines, select=("text",), where=f"contains(text, '{keyword}')")


flink, keyword = containing("flink"), containing("keyword")

pipeline = Pipeline(stream=lines, views=(words, upper_case, copies, flink, keyword))
