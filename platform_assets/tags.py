"""The tags by which assets are filtered, runs are told apart and queued, and the name of the code location."""

LOCATION = "tidemark"
"""The code location's name in workspace.yaml; runs carry it, so that the UI shows them under their job."""

LAYER_TAG = "tidemark/layer"
"""The stage of an event's path that an asset is, such as `event_log`."""

LAUNCHED_BY_TAG = "user"
"""Dagster's own: the UI says by this who launched a run, where it would say that it was launched by hand."""

PROCESS_TAG = "tidemark/process"
"""Marks a run that a process executes by itself, which then also sees to what follows it."""

PIPELINE_TAG = "tidemark/pipeline"
"""Runs that carry the same value are queued one after the other: the tables of a pipeline have one writer."""

STREAM_TAG = "tidemark/stream"
"""Marks the run that supervises the pipeline of that name; there is one at most."""

MAINTENANCE_TAG = "tidemark/maintenance"
"""Runs of one pipeline follow each other; neither stream nor corrections wait for them."""
