"""`smile explain QUERY --as plan --url URL`: the plan by which a broker that runs would answer a query over global
streams."""

import asyncio
import json
from typing import Any, Final

from smile.cli.client import report_errors
from smile.client.address import BrokerAddress
from smile.client.connection import http_request

Json = dict[str, Any]
HEADERS: Final = {"Content-Type": "text/plain"}


def explain_query(query: str, url: str, ca: str | None, *, as_json: bool) -> str:
    with report_errors():
        request = http_request(BrokerAddress.resolve(url, ca=ca), "POST", "/registry/plans", query.encode(), HEADERS)
        report: Json = json.loads(asyncio.run(request))
    if as_json:
        return json.dumps(report, ensure_ascii=False, indent=2)
    return "\n\n".join(map(_plan_text, report["plans"]))


def _plan_text(plan: Json) -> str:
    """As `smile explain --as plan` prints the plans of a program."""
    views = ", ".join(plan["received_for"])
    title = f"QUERY OF {plan['name']}, " + (f"received for {views}" if views else "not received here yet")
    lines = [title, f"query      {plan['query']}", f"meta plan  {plan['meta_plan']}"]
    lines += [f"{'plan' if i == 0 else '':11}{source}" for i, source in enumerate(plan["plan"])]
    lines += ["nobody is known that publishes it"] * (not plan["publishers"])
    width = max(map(len, plan["publishers"]), default=0)
    return "\n".join([*lines, *(f"  {name:{width}}  {reason}" for name, reason in plan["publishers"].items())])
