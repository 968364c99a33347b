"""Trade-Floor on other systems, called peers. Each has its own module, which runs in its own environment.

All process the same events on the same two cores, keep RemainingBuy, RemainingSell and Matchable up to date, and
discard the changes once they are computed. Each is written and configured in the fastest way that was found.
"""
