"""A mobile game: a team goes up a level once each of its players pops 500 bubbles in one minute of the clock."""

import pandas as pd

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Stream, Tumbling, Windowed, WindowFunction

ROSTER = {"blue": ("p1", "p2")}
BUBBLES = 500

pops = Stream(
    name="pops",
    description="One row per player and moment; who sits in a tunnel delivers late.",
    source=Files("landing/pops"),
    format=Json("player string not null, team string not null, popped_at timestamp, bubbles bigint not null"),
    event_time="popped_at",
    clock=BoundedOutOfOrderness("0 seconds"),
)


def level_up(rows: pd.DataFrame) -> pd.DataFrame:
    """A row that says whether each player of the roster has enough, and who has not."""
    popped = rows.groupby("player")["bubbles"].sum()
    missing = [player for player in ROSTER.get(rows["team"].iloc[0], ()) if popped.get(player, 0) < BUBBLES]
    return pd.DataFrame({"level_up": [not missing], "missing": [missing]})


levels = Windowed(
    name="levels",
    # Minutes of the game, not of its arrival: nobody waits for a phone, and a correction gives it its due.
    of=pops,
    by=("team",),
    window=Tumbling("1 minute"),
    function=WindowFunction(level_up, returns="level_up boolean, missing array<string>"),
)
pipeline = Pipeline(stream=pops, views=(levels,))
