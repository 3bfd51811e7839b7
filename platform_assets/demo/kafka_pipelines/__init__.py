"""The pipeline of `tidemark demo --kafka`, found by `TIDEMARK_PIPELINES=platform_assets.demo.kafka_pipelines`."""
