"""Troubles of a broker's network: imports that do not follow, and addresses of neighbours without a link."""

from collections.abc import Iterator, Mapping
from typing import Any

from smile import limits
from smile.broker.health import Trouble, TroubleKind

_PERMANENT_STATES = ("refused", "gone")


def network_troubles(status: Mapping[str, Any]) -> Iterator[Trouble]:
    """Those of a status of the network. A connection that was lost a moment ago is none: it is opened again. None of
    them is severe: the broker goes on with what it has."""
    for name, imported in status["imports"].items():
        state, problem = imported["state"], imported["problem"]
        if state in _PERMANENT_STATES or (state != "live" and imported["for_s"] > limits.link_absence_s_max):
            reason = f": {problem['message']}" if problem else ""
            code = problem["code"] if problem else "E121"
            message = f"the import {name} from {imported['broker']} is {state}{reason}"
            yield Trouble(TroubleKind.IMPORT, name, code, message, is_severe=False)
    for name, hosted in status["hosted"].items():
        refusals = [entry["problem"] for entry in (hosted, *hosted["sources"].values()) if entry["state"] == "refused"]
        for problem in [p for p in refusals if p is not None][:1]:
            message = f"{name}, which is published here, is refused by another broker: {problem['message']}"
            yield Trouble(TroubleKind.IMPORT, name, problem["code"], message, is_severe=False)
    for link in status["links"]:
        if link["state"] == "absent" and link["for_s"] > limits.link_absence_s_max and link["problem"]:
            subject = f"{link['neighbour']} {link['address']}" if link["address"] else link["neighbour"]
            message = f"there is no link to {link['neighbour']}: {link['problem']['message']}"
            yield Trouble(TroubleKind.LINK, subject, link["problem"]["code"], message, is_severe=False)
