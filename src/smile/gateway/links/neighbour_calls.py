"""Calls to neighbours: their addresses, and why a call has failed."""

import json
import os
import ssl
from collections.abc import Iterator

from websockets.exceptions import ConnectionClosed

from smile import limits
from smile.client.address import BrokerAddress
from smile.errors import CATALOGUE, SmileError, error
from smile.settings import NeighbourSettings


def neighbour_addresses(neighbour: NeighbourSettings) -> list[BrokerAddress]:
    return [BrokerAddress(url, neighbour.token or None, neighbour.ca or None) for url in neighbour.url]


def connection_error(
    neighbour: str, address: BrokerAddress, failure: Exception, answer_s_max: float = limits.neighbour_answer_s_max
) -> SmileError:
    """The neighbour could not be called, or has not answered within `answer_s_max`."""
    causes = list(_causes(failure))
    untrusted = next((c for c in causes if isinstance(c, ssl.SSLCertVerificationError)), None)
    if untrusted is not None:
        hint = f"Set the certificates to trust: [brokers.{neighbour}] ca."
        return _unreachable(neighbour, address, f"its certificate is not trusted: {untrusted.verify_message}", hint)
    if any(isinstance(c, ssl.SSLError) for c in causes):
        hint = f"If it has no TLS, write http:// in [brokers.{neighbour}] url."
        return _unreachable(neighbour, address, "there is no TLS at this address", hint)
    if any(isinstance(c, TimeoutError) for c in causes) or "timed out" in str(failure):
        return _unreachable(neighbour, address, f"no answer within {answer_s_max:.0f} s")
    reasons = [os.strerror(c.errno) for c in causes if isinstance(c, OSError) and c.errno is not None and c.errno > 0]
    if not reasons and any(isinstance(c, EOFError | ConnectionError | ConnectionClosed) for c in causes):
        is_plain = address.url.startswith("http:")
        tls_hint = f"If it has TLS, write https:// in [brokers.{neighbour}] url." if is_plain else None
        return _unreachable(neighbour, address, "it has closed the connection", tls_hint)
    return _unreachable(neighbour, address, reasons[-1] if reasons else str(failure) or type(failure).__name__)


def answer_error(neighbour: str, address: BrokerAddress, status: int, body: bytes) -> SmileError:
    """The neighbour has refused a call. Its own error is shown."""
    try:
        answer = json.loads(body)["error"]
        code, message, hint = answer["code"], str(answer["message"]), answer.get("hint")
    except (ValueError, KeyError, TypeError, RecursionError):
        code, message, hint = "", "", None
    if code not in CATALOGUE:
        hint = f"Check [brokers.{neighbour}] url: is that a SMILE broker of this version?"
        return _unreachable(neighbour, address, f"it has answered with status {status}", hint)
    if code == "E091":
        hint = (
            f"Run `smile token NAME` at {neighbour}, with the name of this broker, and set [brokers.{neighbour}] token."
        )
    return error(code, f"{neighbour}: {message}", hint=None if hint is None else str(hint))


def _unreachable(neighbour: str, address: BrokerAddress, reason: str, hint: str | None = None) -> SmileError:
    return error("E103", f"{neighbour} cannot be reached at {address.url}: {reason}", hint=hint)


def _causes(failure: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = failure
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
