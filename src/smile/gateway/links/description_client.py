"""Asks neighbours for the descriptions of relations that a program imports."""

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from smile import limits
from smile.client.address import BrokerAddress
from smile.errors import SmileError, did_you_mean, error
from smile.gateway.links.neighbour_calls import answer_error, connection_error, neighbour_addresses
from smile.program import read_recorded_types
from smile.settings import NeighbourSettings

if TYPE_CHECKING:
    import httpx


class DescriptionClient:
    """`neighbours` are those of the settings, and later those of the catalogue of links. `answer_s_max` may be changed:
    how long to wait for an answer."""

    def __init__(
        self,
        neighbours: Mapping[str, NeighbourSettings],
        answer_s_max: float | None = None,
    ) -> None:
        self.find_neighbours: Callable[[], Mapping[str, NeighbourSettings]] = lambda: neighbours
        self.answer_s_max = limits.neighbour_answer_s_max if answer_s_max is None else answer_s_max

    def fetch(self, broker: str, relation: str) -> str:
        """The description of a relation, as JSON text. E103 if no address of the broker answers. Without an address, it
        comes from the file of types in the settings; E100 if they have neither."""
        neighbours = self.find_neighbours()
        neighbour = neighbours.get(broker)
        if neighbour is not None and not neighbour.url and neighbour.types:
            return _read_types(neighbour.types, broker, relation)
        if neighbour is None or not neighbour.url:
            problem = "the settings have no broker" if neighbour is None else "the settings have no address of"
            hint = did_you_mean(broker, neighbours) if neighbour is None else None
            hint = (
                hint
                or f'Add to the settings: [brokers.{broker}] url = "https://…"; if only {broker} calls, types = "FILE".'
            )
            raise error("E100", f"{problem} {broker}, so the type of {relation} is not known", hint=hint)
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
                timeout=self.answer_s_max,
            ) as client:
                # Not compressed: the size of what arrives is limited.
                headers = {**address.headers, "accept-encoding": "identity"}
                with client.stream("GET", url, headers=headers) as answer:
                    status, content = answer.status_code, _read(answer, broker, relation, self.answer_s_max)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as failure:
            raise connection_error(broker, address, failure, self.answer_s_max) from None
        if status != 200:
            raise answer_error(broker, address, status, content)
        return content.decode(errors="replace")


def _read_types(path: str, broker: str, relation: str) -> str:
    """The description in a file of recorded types. It is read again whenever a program is applied."""
    relations = read_recorded_types([path]).get(broker, {})
    if relation not in relations:
        hint = f"smile explain PROGRAM --as exports --broker {broker} > {path}"
        raise error("E027", f"{path} has no type of {relation} at {broker}", hint=hint)
    return json.dumps(relations[relation])


def _read(answer: "httpx.Response", broker: str, relation: str, answer_s_max: float) -> bytes:
    """The bytes of an answer, as they come. TimeoutError if they do not come in time."""
    content, deadline = bytearray(), time.monotonic() + answer_s_max
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
