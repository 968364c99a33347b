"""What a broker says of its health, sample by sample."""

from dataclasses import replace
from random import Random

from smile.broker.health import (
    HealthMonitor,
    HealthSample,
    TroubleKind,
    ViewSample,
    disk_trouble,
    log_trouble,
    memory_trouble,
)
from smile.broker.maintenance.listener import ViewPause

PAUSE = ViewPause("E053", "no memory", None, since=77.0, is_temporary=True)


def sample(second: int, log: int, views: dict[str, ViewSample], *troubles: str) -> HealthSample:
    evident = [trouble for text in troubles for trouble in log_trouble(text)]
    return HealthSample(1000.0 + second, float(second), {"A": log, "B": 5}, views, evident)


def at(tick: int) -> ViewSample:
    return ViewSample({"A": tick, "B": 5}, {"A", "B"})


def test_the_lag_is_the_age_of_what_a_view_shows() -> None:
    """Whatever the ticks are: they may jump, or stand still."""
    random = Random(1)
    monitor, ticks = HealthMonitor(30), [0]
    for second in range(200):
        ticks.append(ticks[-1] + random.choice([0, 1, 10**15]))
        age = random.randint(0, len(ticks) - 1)
        report = monitor.report(sample(second, ticks[-1], {"V": at(ticks[-1 - age])}))
        reached = max(i for i, tick in enumerate(ticks[1:]) if tick <= ticks[-1 - age]) if age < len(ticks) - 1 else 0
        assert report.lag_s["V"] == second - reached
    assert monitor.report(sample(200, ticks[-1], {"V": at(ticks[-1])})).lag_s == {"V": 0.0}


def test_a_view_that_is_behind_too_long_is_a_trouble_that_keeps_its_time() -> None:
    monitor = HealthMonitor(30)
    for second in range(31):
        assert monitor.report(sample(second, second, {"V": at(0), "W": at(second)})).troubles == []
    for second in (31, 60):
        (trouble,) = monitor.report(sample(second, second, {"V": at(0), "W": at(second)})).troubles
        assert (trouble.kind, trouble.subject, trouble.since) == (TroubleKind.VIEW_BEHIND, "V", 1031.0)
        assert not trouble.is_severe
    report = monitor.report(sample(100, 100, {"V": at(0), "W": at(60)}))
    assert {t.subject for t in report.troubles} == {"V", "W"}
    assert report.is_severe  # no view follows
    assert monitor.report(sample(101, 101, {"V": at(101), "W": at(101)})).troubles == []
    # It is another trouble when it comes again.
    for second in range(102, 140):
        report = monitor.report(sample(second, second, {"V": at(101), "W": at(second)}))
    assert report.troubles[0].since == 1132.0


def test_a_paused_view_is_severe_only_if_there_is_no_other() -> None:
    monitor, paused = HealthMonitor(30), ViewSample({"A": 0, "B": 5}, {"A", "B"}, PAUSE)
    report = monitor.report(sample(0, 0, {"V": paused, "W": at(0)}))
    (trouble,) = report.troubles
    assert (trouble.kind, trouble.code, trouble.since) == (TroubleKind.VIEW_PAUSED, "E053", 77.0)
    assert not report.is_severe
    assert monitor.report(sample(1, 1, {"V": paused})).is_severe
    # A view that is being filled is not expected to follow yet.
    filling = replace(at(-1), is_filling=True)
    for second in range(2, 100):
        report = monitor.report(sample(second, second, {"V": filling, "W": at(second)}))
    assert report.troubles == []
    assert set(report.lag_s) == {"W"}


def test_what_is_evident_is_dated_too() -> None:
    monitor = HealthMonitor(30)
    first, second = (monitor.report(sample(s, 0, {"V": at(0)}, "the disk is full")).troubles[0] for s in (1, 9))
    assert (first, second.since) == (second, 1001.0)
    assert first.is_severe
    assert disk_trouble(99, 100)[0].is_severe
    assert disk_trouble(100, 100) == []
    assert [t.kind for t in memory_trouble(95, 100)] == [TroubleKind.MEMORY]
    assert memory_trouble(95, 0) == memory_trouble(89, 100) == []


def test_a_stream_that_is_added_later_does_not_concern_views_of_others() -> None:
    """The horizons of a view may lack it: neither does its growth make the view late, nor does it hide a late view."""
    monitor = HealthMonitor(30)
    for second in range(100):
        horizons = {"A": second, "B": 5, "Added": 10 * second, "A:3": second}
        known, late = {"A": second, "B": 5, "A:3": second}, {"A": second, "B": 5, "A:3": 0}
        views = {"V": ViewSample(known, {"A"}), "W": ViewSample(late, {"A"}), "X": ViewSample(known, {"B", "Added"})}
        report = monitor.report(HealthSample(1000.0 + second, float(second), horizons, views, ()))
    assert report.lag_s == {"V": 0.0, "W": 99.0, "X": 99.0}
