"""The trading floor: simulated bidders and matchers publish the events, so the story has none of its own."""

from smile.demo.story import Absence, Step, Story

TRADEFLOOR = Story(
    name="tradefloor",
    title="The trading floor",
    program="tradefloor.smile",
    seconds=60.0,
    make_events=lambda _round, _random: (),
    steps=(
        Step(
            0,
            "What can be matched",
            "Bidders publish bids. Matchers subscribe to this view, choose pairs, and publish matches. At most (≤) so "
            "many shares of each bid remain: a match can only lower the number.",
            "Matchable",
            column="buyremaining",
        ),
        Step(
            20,
            "Bids that are used up",
            "When nothing of a bid remains, its row is gone for good (✗): no match is ever taken back. The broker "
            "drops its state, and so the floor can run for years.",
            "RemainingBuy",
            column="buyremaining",
        ),
        Step(
            40,
            "A subscriber comes back",
            "A subscriber of this view goes away for eight seconds. When it comes back, it is sent the bids that have "
            "changed, as they are now, and not every match that it has missed.",
            "RemainingSell",
            column="sellremaining",
        ),
    ),
    absence=Absence("RemainingSell", 40, 48),
)
