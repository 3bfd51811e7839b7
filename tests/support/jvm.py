"""How the JVMs of tests are started."""

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM that lives for seconds or minutes: compiling once more, for speed, takes longer than it saves."""
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Spark settings for queries over a handful of rows: compiling a query takes longer than interpreting it."""
