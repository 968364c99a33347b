"""Sensors: hours that close, a sensor that falls silent, and the hottest three."""

from collections.abc import Sequence
from random import Random

from smile.demo.story import Absence, Step, Story, TimedEvent, every

SECONDS = 60.0
CELSIUS = {"boiler": 61.0, "cellar": 11.0, "hall": 20.0, "kitchen": 21.0, "oven": 30.0}


def make_events(_round: int, random: Random) -> Sequence[TimedEvent]:
    events = list[TimedEvent]()
    for number, (sensor, start) in enumerate(CELSIUS.items()):
        celsius = start
        for at_s in every(1.0, 0.2 * number, SECONDS):
            celsius += random.uniform(-0.6, 0.6)
            if sensor == "oven" and 27 < at_s < 40:
                celsius += 4.0  # it is switched on
            elif sensor == "oven" and at_s > 40:
                celsius = max(start, celsius - 2.0)
            if sensor != "cellar" or not 14 < at_s < 32:  # it falls silent
                events.append(TimedEvent(at_s, "Readings", {"sensor": sensor, "celsius": round(celsius, 1)}))
    return sorted(events, key=lambda event: event.at_s)


SENSORS = Story(
    name="sensors",
    title="Sensors and their silence",
    program="sensors.smile",
    seconds=SECONDS,
    shortened={
        "INTERVAL '1' HOUR": "INTERVAL '10' SECOND",
        "INTERVAL '3' MINUTE": "INTERVAL '5' SECOND",
        "INTERVAL '10' MINUTE": "INTERVAL '10' SECOND",
    },
    make_events=make_events,
    steps=(
        Step(
            0,
            "An hour closes",
            "Here an hour lasts ten seconds. While it is open, n is at least (≥) what is shown. When it is over, n and "
            "the mean are exact (=), and the rows are final (✓), whether another reading comes or not.",
            "Hourly",
            column="n",
        ),
        Step(
            14,
            "A silence",
            "The sensor in the cellar has stopped. When it has been silent for five seconds, a row appears: its last "
            "reading, and that nothing followed. The row is final (✓) at once, and stays if the sensor comes back.",
            "Silent",
        ),
        Step(
            26,
            "The hottest three",
            "The three hottest sensors as of now. The oven is switched on, and moves up; later it cools down.",
            "Hottest",
            column="celsius",
        ),
        Step(
            40,
            "As of now",
            "What each sensor has said last, and when.",
            "Now",
            column="celsius",
        ),
        Step(
            48,
            "A subscriber comes back",
            "A subscriber of this view goes away for eight seconds. When it comes back, it is sent each sensor's "
            "newest reading, and not all that it has missed.",
            "Now",
            column="celsius",
        ),
    ),
    absence=Absence("Now", 48, 56),
)
