"""Stock quotes: windows that close, a threshold that is reached before, a list that changes, and a subscriber that was
away."""

from collections.abc import Sequence
from random import Random

from smile.demo.story import Absence, Step, Story, TimedEvent, every

SECONDS = 60.0
ISSUES = ("ACME", "IBM", "MSFT", "SUN")


def make_events(_round: int, random: Random) -> Sequence[TimedEvent]:
    prices = {issue: 5_000 * number for number, issue in enumerate(ISSUES, 1)}
    events = [TimedEvent(0, "BuyList", {"issue": "IBM", "listed": True})]
    for number, at_s in enumerate(every(0.4, 0, SECONDS)):
        issue = ISSUES[number % len(ISSUES)]
        prices[issue] += random.randint(-150, 150)
        volume = 1_000 * (random.randint(80, 150) if issue == "IBM" else random.randint(20, 90))
        events.append(TimedEvent(at_s, "Quotes", {"issue": issue, "price": prices[issue], "volume": volume}))
    events.append(TimedEvent(38, "BuyList", {"issue": "SUN", "listed": True}))
    events.append(TimedEvent(44, "BuyList", {"issue": "IBM", "listed": False}))
    return sorted(events, key=lambda event: event.at_s)


STOCKS = Story(
    name="stocks",
    title="Stock quotes",
    program="stocks.smile",
    seconds=SECONDS,
    shortened={"INTERVAL '1' HOUR": "INTERVAL '10' SECOND", "SUM(volume) > 500000": "SUM(volume) > 400000"},
    added="""

-- The issues of which more than 300,000 shares were traded in an hour. Shares are never taken back, so a row is final
-- as soon as it appears, although its hour is not over.
CREATE VIEW Busy AS
  SELECT window_start, issue
  FROM TUMBLE(Quotes, t, INTERVAL '10' SECOND)
  GROUP BY window_start, issue
  HAVING SUM(volume) > 300000;

SUBSCRIBE Busy;
""",
    make_events=make_events,
    steps=(
        Step(
            0,
            "An hour closes",
            "Here an hour lasts ten seconds. While it is open, the high is at least (≥) what is shown, and the low may "
            "still fall. When it is over, all numbers are exact (=) and the rows are final (✓).",
            "Hourly",
            column="high",
        ),
        Step(
            15,
            "Decided before the hour is over",
            "More than 300,000 shares of these issues were traded in one hour. Trades are never taken back: so each "
            "row is final (✓) at once, and nobody has to wait until the hour is over.",
            "Busy",
        ),
        Step(
            26,
            "As of now",
            "The issues of which more than 400,000 shares were traded in the last hour, as of now. A row comes when it "
            "is more, and goes when it is less: so none is final. A subscriber hears of that, not of every quote.",
            "HighTraders",
        ),
        Step(
            36,
            "A list changes",
            "Somebody's 'buy' list selects the issues. SUN is put on it now, and its price appears; a few seconds "
            "later IBM is taken off, and its row goes.",
            "WantedPrices",
            column="price",
        ),
        Step(
            48,
            "A subscriber comes back",
            "A subscriber of this view goes away for eight seconds. When it comes back, it is sent the rows that have "
            "changed, as they are now: not every quote that it has missed.",
            "Hourly",
            column="current",
        ),
    ),
    absence=Absence("Hourly", 48, 56),
)
