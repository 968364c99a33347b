"""The slow, obvious evaluator of whole programs: everything is computed anew from all events, so nothing is stale."""
