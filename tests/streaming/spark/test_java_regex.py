"""RE2 finds what Java finds, of the expressions that it is given."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming.spark.java_regex import NotTheSameError, re2_of
from tests.support.seeds import draws

CHARACTERS = ["a", "b", "c", "k", "s", "A", "K", "S", "0", "_", " ", "-", ".", "\n", "\r", "\t", "\x0b", "\x0c", "\x1c"]
CHARACTERS += [
    "\x85",
    "\u2028",
    "\u2029",
    "é",
    "É",
    "\u017f",
    "\u212a",
    "İ",
    "ß",
    "\u0661",
    "\u0301",
    "\ud7ff",
    "\ue000",
    "😀",
    "\U0010ffff",
]
ATOMS = [
    *"abckAK0_- ",
    "é",
    "😀",
    "\u017f",
    ".",
    r"\d",
    r"\D",
    r"\w",
    r"\W",
    r"\s",
    r"\S",
    r"\.",
    r"\n",
    r"\x41",
    r"\u00e9",
]
ATOMS += [
    "[a-c]",
    "[^a-c]",
    "[a-]",
    "[-a]",
    r"[\w-]",
    r"[^\s]",
    r"[\d.]",
    "[^é]",
    "[😀a]",
    "[^😀]",
    "[J-L]",
    "[^k]",
    "[+-.]",
    "[a^]",
]
ATOMS += ["^", "$", r"\b", r"\A", r"\z", "(a|b)", "(?:ab|c)", "(a)", "(b|)", "]", "}", "-"]
TIMES = ["", "", "", "*", "+", "?", "{2}", "{1,2}", "{1,}", "{0,1}", "*?", "+?", "??", "{2}?"]
NOT_THE_SAME = [
    "(?=a)",
    "(?<!a)b",
    "(?<n>a)",
    r"(a)\1",
    "a*+",
    "a++",
    "(?s).",
    "a(?i)b",
    r"\p{L}",
    r"\h",
    r"\R",
    r"\Qa\E",
    r"\B",
    r"\Z",
]
NOT_THE_SAME += [
    "[a[b]]",
    "[a&&b]",
    "[]a]",
    "[^^]",
    r"[\D]",
    "[\ud7ff-\ue000]",
    "(a*)*",
    "(a?)+",
    "^*",
    "$+",
    "a**",
    "a{2}{3}",
]
NOT_THE_SAME += [
    "a{200}",
    "a{,2}",
    "a{0}",
    "a{2,1}",
    "a{",
    "(",
    ")",
    "*a",
    "a|*",
    "[",
    "[a",
    "[b-a]",
    "\\",
    r"\u12",
    r"\0101",
    r"\ud83d",
]
NOT_THE_SAME += ["(?i)(?s)a", "{1}", r"\G", r"\cA", r"[a-\d]"]


def drawn(random: Random) -> str:
    def sequence(depth: int) -> str:
        return "".join(part(depth) for _ in range(random.randint(1, 4)))

    def part(depth: int) -> str:
        if depth and random.random() < 0.25:
            branches = "|".join(sequence(depth - 1) for _ in range(random.randint(1, 3)))
            return f"({random.choice(['', '?:'])}{branches}){random.choice(TIMES)}"
        return random.choice(ATOMS) + random.choice(TIMES)

    start = random.choice(["", "", "^", "(?i)", "(?i)^"])
    return start + "|".join(sequence(2) for _ in range(random.choice([1, 1, 2]))) + random.choice(["", "", "$"])


def texts(random: Random) -> list[str]:
    return ["", *("".join(random.choices(CHARACTERS, k=random.randint(1, 7))) for _ in range(400))]


def differences(spark: SparkSession, patterns: list[str], texts: list[str]) -> list[str]:
    """What Java and RE2 do not find alike, in words."""
    found = [(pattern, re2) for pattern in patterns for re2 in _re2(pattern)]
    rows = spark.createDataFrame([(text,) for text in texts], "text string").repartition(1).sortWithinPartitions("text")
    columns = [F.col("text").rlike(pattern).alias(f"p{place}") for place, (pattern, _) in enumerate(found)]
    by_java = rows.select("text", *columns).toArrow()
    array = by_java["text"].combine_chunks()
    different = []
    for place, (pattern, (re2, odd)) in enumerate(found):
        wrong = pc.not_equal(pc.match_substring_regex(array, re2), by_java[f"p{place}"].combine_chunks())
        if odd is not None:
            wrong = pc.and_(wrong, pc.invert(pc.match_substring_regex(array, odd)))
        places = np.flatnonzero(wrong.to_numpy(zero_copy_only=False))
        different += [f"{pattern!r} as {re2!r} in {array[int(at)].as_py()!r}" for at in places[:1]]
    return different


def _re2(pattern: str) -> list[tuple[str, str | None]]:
    try:
        made = re2_of(pattern)
        pc.match_substring_regex(pa.array([""]), made.pattern)
    except (NotTheSameError, pa.ArrowInvalid):
        return []
    return [(made.pattern, made.odd)]


def test_drawn_expressions_find_the_same(spark: SparkSession) -> None:
    random = draws("regular expressions")
    patterns = [drawn(random) for _ in range(150)]
    assert sum(bool(_re2(pattern)) for pattern in patterns) > 40
    assert differences(spark, patterns, texts(random)) == []


@pytest.mark.parametrize("pattern", NOT_THE_SAME)
def test_what_may_mean_something_else_is_refused(pattern: str) -> None:
    with pytest.raises(NotTheSameError):
        re2_of(pattern)


@pytest.mark.parametrize(
    "pattern",
    [r"^[A-Z]{2}\d{3,6}$", r"^[\w.+-]+@[\w-]+\.[a-z]{2,}$", "(?i)^error|warn", r"^\+?[0-9 ()-]{7,}$", r"\bfoo\b"],
)
def test_expressions_as_they_are_often_written_are_known(pattern: str) -> None:
    assert re2_of(pattern)
