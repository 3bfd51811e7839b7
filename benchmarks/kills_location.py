"""The code location of `make kills`: the one pipeline that is killed, whose sensors alone the daemon then asks."""

from benchmarks.pipelines.helpdesk import pipeline
from tidemark import definitions

defs = definitions([pipeline.name])
