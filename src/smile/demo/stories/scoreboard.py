"""A hockey scoreboard: scores that may still grow, periods that end, and games that end."""

from collections.abc import Sequence
from random import Random

from smile.demo.story import Absence, Step, Story, TimedEvent

SECONDS = 60.0
SCORERS = {
    "Boston": ("Pastrnak", "Marchand", "McAvoy"),
    "Detroit": ("Larkin", "Raymond", "Seider"),
    "New York": ("Panarin", "Zibanejad", "Fox"),
    "Montreal": ("Suzuki", "Caufield", "Matheson"),
}
GOALS = {
    "BOS-DET": ((2, "Detroit"), (5, "Boston"), (8, "Boston"), (12, "Boston"), (17, "Detroit"), (23, "Boston"),
                (27, "Boston"), (29, "Detroit"), (34, "Boston")),
    "NYR-MTL": ((3, "Montreal"), (7, "New York"), (14, "New York"), (20, "Montreal"), (26, "Montreal"),
                (33, "New York"), (42, "New York"), (49, "Montreal"), (51, "New York"), (53, "Montreal")),
}  # fmt: skip
GAMES = {"BOS-DET": ("Boston", "Detroit", 38.0), "NYR-MTL": ("New York", "Montreal", 54.0)}
"""Home, away, and the time of the end."""


def make_events(round_number: int, random: Random) -> Sequence[TimedEvent]:
    events = list[TimedEvent]()
    for name, (home, away, end_s) in GAMES.items():
        game = f"{name} {round_number + 1}"
        events.append(TimedEvent(0, "Games", {"game": game, "home": home, "away": away}))
        for at_s, team in GOALS[name]:
            goal = {"game": game, "team": team, "period": 1 + int(at_s // 18), "scorer": random.choice(SCORERS[team])}
            events.append(TimedEvent(at_s, "Goals", goal))
        events.append(TimedEvent(end_s, "Ends", {"game": game}))
    return sorted(events, key=lambda event: event.at_s)


SCOREBOARD = Story(
    name="scoreboard",
    title="A hockey scoreboard",
    program="scoreboard.smile",
    seconds=SECONDS,
    added="""

-- The goals of each team in each quarter of a minute.
CREATE VIEW Quarters AS
  SELECT window_start, window_end, team, COUNT(*) AS goals
  FROM TUMBLE(Goals, t, INTERVAL '15' SECOND)
  GROUP BY window_start, window_end, team;

-- Who scored three goals or more in half a minute: decided by the third goal.
CREATE VIEW HatTricks AS
  SELECT window_start, game, team
  FROM TUMBLE(Goals, t, INTERVAL '30' SECOND)
  GROUP BY window_start, game, team
  HAVING COUNT(*) >= 3;

SUBSCRIBE Quarters, HatTricks;
""",
    make_events=make_events,
    steps=(
        Step(
            0,
            "Scores that may still grow",
            "≥2 means at least two goals: the game is on, and goals are never taken back. What the board shows is "
            "never false.",
            "Board",
            column="homegoals",
        ),
        Step(
            13,
            "A period ends",
            "The goals of each team in each quarter of a minute. While it lasts, the count may grow (≥). When it ends, "
            "the count is exact (=) and the row is final (✓), although no event says so. Silence is knowledge.",
            "Quarters",
            column="goals",
        ),
        Step(
            28,
            "Decided before the end",
            "Three goals of a team in half a minute. The third goal decides it: the row is final (✓) at once, and does "
            "not wait for the end of the half minute.",
            "HatTricks",
        ),
        Step(
            39,
            "A game ends",
            "Boston against Detroit is over now. Its score up to the end of the game is exact, and final.",
            "Final",
            column="homegoals",
        ),
        Step(
            47,
            "A subscriber comes back",
            "A subscriber of the board goes away for eight seconds. When it comes back, it is told the present score "
            "of the games that have changed, and not every goal.",
            "Board",
            column="awaygoals",
        ),
    ),
    absence=Absence("Board", 47, 55),
)
