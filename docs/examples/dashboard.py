"""The latest maximum of each sensor, a line every ten seconds: run it while `tidemark metrics` serves it."""

import time

import httpx

from streaming import Ascending, Files, Json, Pipeline, Stream, Tumbling, Windowed, agg, epoch_millis, latest

SENSORS = [f"sensor_{number}" for number in range(1, 6)]

measured = Stream(
    name="measured",
    description="One row per reading of a sensor.",
    source=Files("landing/measured"),
    format=Json("id string not null, timestamp bigint not null, temperature double not null"),
    derived={"event_time": epoch_millis("timestamp")},
    event_time="event_time",
    clock=Ascending(),
)
maximum = {"temperature": agg.maximum("temperature")}
max_temperature = Windowed("max_temperature", measured, Tumbling("10 seconds"), maximum, by=("id",))
last_temperature = latest("last_temperature", measured, ("id",))
pipeline = Pipeline(stream=measured, views=(max_temperature, last_temperature))


def shown(server: httpx.Client, sensor: str) -> str:
    """The latest maximum of a sensor with three decimals, `-` where there is none."""
    answer = server.get("/latest/measured/max_temperature", params={"id": sensor})
    if answer.status_code == httpx.codes.NOT_FOUND:
        return "-"
    return f"{answer.raise_for_status().json()['rows'][0]['temperature']:.3f}"


def line(server: httpx.Client, sensors: list[str]) -> str:
    """The line that the dashboard shows of the sensors at one time."""
    return "\t| ".join(shown(server, sensor) for sensor in sensors)


if __name__ == "__main__":
    with httpx.Client(base_url="http://127.0.0.1:9464") as here:
        while True:
            print(line(here, SENSORS), flush=True)
            time.sleep(10)
