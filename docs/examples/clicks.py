"""Clicks on advertisements, with the campaign that an advertisement belonged to when it was clicked."""

from streaming import BoundedOutOfOrderness, Files, Joined, Json, Pipeline, Stream

ads = Stream(
    name="ads",
    description="One row per advertisement that is put into a campaign.",
    source=Files("landing/ads"),
    format=Json("ad_id string not null, campaign string not null, since timestamp not null"),
    event_time="since",
    clock=BoundedOutOfOrderness("0 seconds", idle_after="1 minute"),
)

clicks = Stream(
    name="clicks",
    description="One row per click.",
    source=Files("landing/clicks"),
    format=Json("ad_id string, clicked_at timestamp not null"),
    event_time="clicked_at",
    clock=BoundedOutOfOrderness("0 seconds", idle_after="1 minute"),
)

campaign_clicks = Joined(
    name="campaign_clicks",
    left=clicks,
    right=ads,
    on=("ad_id",),
    between=("-30 days", "0 seconds"),
    kind="left",
    select=("ad_id", "campaign"),
    description="A click on an advertisement that nobody has declared yet is among the unmatched, until somebody does.",
)

pipeline = Pipeline(name="clicks_by_campaign", streams=(clicks, ads), operators=(campaign_clicks,))
