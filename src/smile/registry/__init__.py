"""The registry: who publishes what of the global streams, and which plan answers a query. Everything here is pure.

Read in this order: schema, conditions, publishers, planner, maintenance, hierarchy, explain, assembly.
"""
