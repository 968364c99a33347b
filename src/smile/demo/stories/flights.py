"""Flight bookings: seats that only become fewer, and a list of the three cheapest flights."""

from collections.abc import Sequence
from random import Random

from smile.demo.story import Absence, Step, Story, TimedEvent, every

SECONDS = 60.0
FLIGHTS_TO_LONDON = (("AA141", 420, 14), ("UA23", 450, 30), ("NW44", 390, 7), ("BA112", 510, 60), ("VS4", 475, 24))
"""Name, price and seats."""


def make_events(round_number: int, random: Random) -> Sequence[TimedEvent]:
    def name(flight: str) -> str:
        """Each round has flights of its own: those of the round before are full, or remain."""
        return flight if not round_number else f"{flight}-{round_number}"

    # The flights of a later round are cheaper, so that the list changes again.
    offers = [(name(flight), price - 60 * round_number, seats) for flight, price, seats in FLIGHTS_TO_LONDON]
    events = [
        TimedEvent(0.2 * number, "Flights", {"flight": f, "dest": "LHR", "price": max(0, price), "capacity": seats})
        for number, (f, price, seats) in enumerate(offers)
    ]
    by_price = [flight for flight, _, _ in sorted(offers, key=lambda offer: offer[1])]
    for at_s in every(0.8, 1.5, SECONDS - 2):
        flight = by_price[min(int(random.expovariate(1.2)), len(by_price) - 1)]
        events.append(TimedEvent(at_s, "Booked", {"flight": flight, "n": random.randint(1, 2)}))
    special = {"flight": name("SAS900"), "dest": "LHR", "price": max(0, 300 - 60 * round_number), "capacity": 9}
    events.append(TimedEvent(38, "Flights", special))
    events += [TimedEvent(40 + 2 * n, "Booked", {"flight": name("SAS900"), "n": 2}) for n in range(5)]
    return sorted(events, key=lambda event: event.at_s)


FLIGHTS = Story(
    name="flights",
    title="Flights to London",
    program="flights.smile",
    seconds=SECONDS,
    make_events=make_events,
    steps=(
        Step(
            0,
            "Seats that only become fewer",
            "≤14 means at most 14 seats: bookings are never taken back, so the number can only fall. This subscriber "
            "has asked for AA141 and UA23 only.",
            "Planned",
            column="unsold",
        ),
        Step(
            12,
            "The three cheapest",
            "The three cheapest flights that have a seat. When one of them is full, it leaves the list for good, and "
            "the next one moves up.",
            "Cheapest",
            column="unsold",
        ),
        Step(
            26,
            "A party of five",
            "The same for a party of five: a flight with four seats is of no use to it, and will never be again. So "
            "its row is gone for good, and its state is dropped.",
            "CheapestForFive",
            column="unsold",
        ),
        Step(
            37,
            "A special offer",
            "A cheaper flight is published now. It enters the list at once, pushes another out, and is soon full.",
            "Cheapest",
            column="price",
        ),
        Step(
            46,
            "A subscriber comes back",
            "A subscriber of this list goes away for eight seconds. When it comes back, it is sent what the list is "
            "now, and not every booking that it has missed.",
            "Cheapest",
            column="unsold",
        ),
    ),
    absence=Absence("Cheapest", 46, 54),
)
