"""Asks neighbours for the descriptions of relations that a program imports."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from smile import limits
from smile.client.address import BrokerAddress
from smile.errors import SmileError, did_you_mean, error
from smile.gateway.links.neighbour_calls import answer_error, connection_error, neighbour_addresses
from smile.settings import NeighbourSettings

if TYPE_CHECKING:
    import httpx


class DescriptionClient:
    """`neighbours` are those of the settings."""

    def __init__(self, neighbours: Mapping[str, NeighbourSettings]) -> None:
        self._neighbours = neighbours

    def fetch(self, broker: str, relation: str) -> str:
        """The description of a relation, as JSON text. E103 if no address of the broker answers."""
        neighbour = self._neighbours.get(broker)
        if neighbour is None or not neighbour.url:
            problem = "the settings have no broker" if neighbour is None else "the settings have no address of"
            hint = did_you_mean(broker, self._neighbours) if neighbour is None else None
            hint = hint or f'Add to the settings: [brokers.{broker}] url = "https://…".'
            raise error("E103", f"{problem} {broker}, so the type of {relation} is not known", hint=hint)
        problems = []
        for address in neighbour_addresses(neighbour):
            try:
                return self._fetch(broker, address, relation)
            except SmileError as failure:
                problems.append(failure)
        raise next((p for p in problems if p.diagnostics[0].code != "E103"), problems[0])

    def _fetch(self, broker: str, address: BrokerAddress, relation: str) -> str:
        import httpx  # noqa: PLC0415  # slow to import; only programs with imports need it

        url = f"{address.url}/exports/{quote(relation, safe='')}"
        try:
            with httpx.Client(
                verify=address.tls_context() or True,
                trust_env=not address.is_loopback,
                timeout=limits.neighbour_answer_s_max,
            ) as client:
                # Not compressed: the size of what arrives is limited.
                headers = {**address.headers, "accept-encoding": "identity"}
                with client.stream("GET", url, headers=headers) as answer:
                    status, content = answer.status_code, _read(answer, broker, relation)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as failure:
            raise connection_error(broker, address, failure) from None
        if status != 200:
            raise answer_error(broker, address, status, content)
        return content.decode(errors="replace")


def _read(answer: "httpx.Response", broker: str, relation: str) -> bytes:
    """The bytes of an answer, as they come. TimeoutError if they do not come in time."""
    content, deadline = bytearray(), time.monotonic() + limits.neighbour_answer_s_max
    for part in answer.iter_raw():
        content += part
        if len(content) > limits.description_bytes_max:
            message = (
                f"{broker} has sent more than {limits.description_bytes_max:,} bytes as the description of {relation}"
            )
            raise error("E027", message)
        if time.monotonic() > deadline:
            raise TimeoutError
    return bytes(content)
