#!/usr/bin/env python3
"""The command of a Spark executor's pod in this image: `executor`, told all else by its environment.

Spark gives its pods the argument `executor`, which in Spark's own image a script takes. With this one, drivers and
executors are of one image, so that Python, library and project are the same and at the same path.
"""

import os
from pathlib import Path

import pyspark

ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def command(environment):
    """The command line of the executor.

    Raises:
        KeyError: this is no pod of an executor: a variable is missing.
    """
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    options = [value for name, value in environment.items() if name.startswith("SPARK_JAVA_OPT_")]
    classes = f"{environment.get('SPARK_CLASSPATH', '')}:{Path(pyspark.__file__).parent}/jars/*".lstrip(":")
    arguments = [part for option, name in ARGUMENTS.items() for part in (option, environment[name])]
    backend = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    return ["java", *options, f"-Xms{memory}", f"-Xmx{memory}", "-cp", classes, backend, *arguments]


if __name__ == "__main__":
    line = command(os.environ)
    # What the driver sends is put into the current folder, and that of the image cannot be written.
    os.chdir(os.environ["SPARK_LOCAL_DIRS"].partition(",")[0])
    os.execvp(line[0], line)
