"""Trade-Floor on other systems. Each has a module of its own, which runs in an environment of its own.

All are given the same events on the same two cores, keep RemainingBuy, RemainingSell and Matchable up to date, and
throw the changes away once they are computed. Each is written and set as it was found to be fastest.
"""
