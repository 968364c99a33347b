"""The messages of one connection after its startup, as a state machine without I/O.

Query texts are rewritten, and the results of rewritten statements are replaced by what PostgreSQL would answer if the
statements were its own: no rows, and a tag. A result is replaced only if its single column has the name that this
connection gave it. Positions in errors are those of the client's text. All other bytes pass through unchanged.
"""

import struct
from typing import Final

from smile import limits
from smile.errors import Diagnostic, SmileError, error
from smile.postgres.proxy.encodings import decode_text, encode_text
from smile.postgres.proxy.messages import (
    NO_DATA,
    Fields,
    Handling,
    MessageFilter,
    command_complete,
    decode_fields,
    encode_fields,
    message,
    replace_field,
)
from smile.postgres.proxy.requests import ClientRequest, RequestKind, RequestQueue
from smile.postgres.statements.rewriting import RewrittenQuery, rewrite_query
from smile.postgres.statements.translation import refused_values

SASL: Final = 10
"""The kind of authentication message in which the server offers mechanisms."""
CHANNEL_BINDING_SUFFIX: Final = b"-PLUS"
SYNTAX_ERROR: Final = b"42601"
UNDEFINED_FUNCTION: Final = b"42883"
INVALID_SCHEMA_NAME: Final = b"3F000"

_COLUMN_BYTES: Final = 18
"""What a RowDescription has for each column besides its name."""
_TAGS_THAT_FORGET: Final = (b"DISCARD ALL\0", b"DEALLOCATE ALL\0")


class ProxySession:
    """`result_name` must be a name that no client can guess. Without `translates`, only the offer of channel binding is
    removed: a connection for replication has another grammar."""

    def __init__(self, result_name: str, translates: bool = True) -> None:
        self._result_name, self._translates = result_name, translates
        self._result_description = self._start_of_description(result_name)
        self._requests = RequestQueue()
        # The server reports that it is ready after the startup as well.
        self._requests.add(ClientRequest(RequestKind.SYNC))
        self._encoding, self._conforming_strings = "UTF8", True
        self._awaits_sasl_response = self._removed_channel_binding = False
        self._hides_rows = False
        """Whether the result of a translated statement of a simple query is being received."""
        self.from_client = MessageFilter(self._decide_client, self._read_client, self._read_client_names)
        self.from_server = MessageFilter(self._decide_server, self._read_server, self._read_client_names)

    @staticmethod
    def _start_of_description(result_name: str) -> bytes:
        return struct.pack("!h", 1) + result_name.encode() + b"\0"

    # ── from the client ─────────────────────────────────────────────────────────────────────────────────────────────

    def _decide_client(self, kind: bytes, length: int) -> Handling:
        is_short = length <= limits.proxy_text_bytes_max
        if kind == b"p":
            return Handling.READ if self._awaits_sasl_response and is_short else Handling.PASS
        if not self._translates:
            return Handling.PASS
        match kind:
            case b"Q":
                if is_short:
                    return Handling.READ
                self._requests.add(ClientRequest(RequestKind.QUERY))
            case b"P":
                return Handling.READ if is_short else Handling.READ_NAMES
            case b"B" | b"D" | b"E" | b"C":
                return Handling.READ_NAMES
            case b"S":
                self._requests.add(ClientRequest(RequestKind.SYNC))
            case b"F":
                self._requests.add(ClientRequest(RequestKind.FUNCTION_CALL))
            case b"c" | b"f":
                self._requests.add(ClientRequest(RequestKind.COPY_END))
        return Handling.PASS

    def _read_client(self, kind: bytes, body: bytes) -> bytes:
        if kind == b"p":
            self._check_sasl_response(body)
            return message(kind, body)
        name, separator, rest = body.partition(b"\0") if kind == b"P" else (b"", b"", body)
        text, end, types = rest.partition(b"\0")
        rewritten = self._rewrite(text) if end and (kind == b"P" or not types) else None
        request_kind = RequestKind.PARSE if kind == b"P" else RequestKind.QUERY
        self._requests.add(ClientRequest(request_kind, statement=name, rewritten=rewritten))
        if rewritten is None or not rewritten.translations:
            return message(kind, body)
        return message(kind, name + separator + encode_text(rewritten.query.text, self._encoding) + end + types)

    def _rewrite(self, text: bytes) -> RewrittenQuery | None:
        decoded = decode_text(text, self._encoding)
        if decoded is None:
            return None
        return rewrite_query(decoded, self._result_name, self._conforming_strings)

    def _read_client_names(self, kind: bytes, names: list[bytes]) -> None:
        first, second = [*names, b"", b""][:2]
        match kind:
            case b"P":
                request = ClientRequest(RequestKind.PARSE, statement=first)
            case b"B":
                request = ClientRequest(RequestKind.BIND, portal=first, statement=second)
            case b"E":
                request = ClientRequest(RequestKind.EXECUTE, portal=first)
            case b"D" if first[:1] == b"S":
                request = ClientRequest(RequestKind.DESCRIBE_STATEMENT, statement=first[1:])
            case b"D":
                request = ClientRequest(RequestKind.DESCRIBE_PORTAL, portal=first[1:])
            case _ if first[:1] == b"S":
                request = ClientRequest(RequestKind.CLOSE_STATEMENT, statement=first[1:])
            case _:
                request = ClientRequest(RequestKind.CLOSE_PORTAL, portal=first[1:])
        self._requests.add(request)

    def _check_sasl_response(self, body: bytes) -> None:
        """Channel binding proves to the client that nobody is between it and the server, and the proxy is."""
        self._awaits_sasl_response = False
        mechanism, _, rest = body.partition(b"\0")
        response = rest[4:]
        if mechanism.endswith(CHANNEL_BINDING_SUFFIX) or response.startswith(b"p="):
            raise _channel_binding_error("the client requires channel binding, which a proxy cannot relay")
        if response.startswith(b"y") and self._removed_channel_binding:
            raise _channel_binding_error("client and server both support channel binding, which a proxy cannot relay")

    # ── from the server ─────────────────────────────────────────────────────────────────────────────────────────────

    def _decide_server(self, kind: bytes, length: int) -> Handling:
        is_short = length <= limits.proxy_text_bytes_max
        if kind == b"R":
            return Handling.READ if is_short else Handling.PASS
        if not self._translates:
            return Handling.PASS
        match kind:
            case b"D":
                return Handling.DROP if self._is_result_hidden() else Handling.PASS
            case b"T":
                is_result = length == 4 + len(self._result_description) + _COLUMN_BYTES
                if self._requests.rewritten is not None and is_result:
                    return Handling.READ
                self._requests.complete(RequestKind.DESCRIBE_STATEMENT, RequestKind.DESCRIBE_PORTAL)
            case b"n":
                self._requests.complete(RequestKind.DESCRIBE_STATEMENT, RequestKind.DESCRIBE_PORTAL)
            case b"C":
                is_forgetting = any(length == 4 + len(tag) for tag in _TAGS_THAT_FORGET)
                if is_forgetting or self._is_result_hidden():
                    return Handling.READ
                self._requests.complete(RequestKind.EXECUTE)
            case b"s":
                if self._is_result_hidden():
                    return Handling.READ
                self._requests.complete(RequestKind.EXECUTE)
            case b"I":
                self._requests.complete(RequestKind.EXECUTE)
            case b"1":
                self._requests.complete(RequestKind.PARSE)
            case b"2":
                self._requests.complete(RequestKind.BIND)
            case b"3":
                self._requests.complete(RequestKind.CLOSE_STATEMENT, RequestKind.CLOSE_PORTAL)
            case b"G":
                self._requests.begin_copy_in()
            case b"N":
                return Handling.READ if self._requests.rewritten is not None and is_short else Handling.PASS
            case b"E":
                if self._requests.rewritten is not None and is_short:
                    return Handling.READ
                self._fail()
            case b"S" if is_short:
                return Handling.READ
            case b"Z":
                return Handling.READ
        return Handling.PASS

    def _is_result_hidden(self) -> bool:
        if self._requests.is_oldest(RequestKind.EXECUTE):
            return self._requests.rewritten is not None
        return self._hides_rows

    def _fail(self) -> None:
        self._hides_rows = False
        self._requests.fail()

    def _read_server(self, kind: bytes, body: bytes) -> bytes:
        match kind:
            case b"R":
                return message(kind, self._read_authentication(body))
            case b"S":
                self._read_parameter(body)
            case b"Z":
                self._hides_rows = False
                self._requests.report_ready(is_idle=body == b"I")
            case b"T" if body.startswith(self._result_description):
                return self._hide_description()
            case b"T":
                self._requests.complete(RequestKind.DESCRIBE_STATEMENT, RequestKind.DESCRIBE_PORTAL)
            case b"C" | b"s" if self._is_result_hidden():
                return self._complete_translated()
            case b"C":
                self._requests.complete(RequestKind.EXECUTE)
                if body in _TAGS_THAT_FORGET:
                    self._requests.forget_statements()
            case b"N":
                return message(kind, self._restore_positions(body))
            case b"E":
                body = self._restore_positions(body)
                self._fail()
        return message(kind, body)

    def _read_authentication(self, body: bytes) -> bytes:
        """Removes mechanisms with channel binding from the server's offer."""
        if len(body) < 4 or int.from_bytes(body[:4], "big") != SASL:
            return body
        offered = body[4:].split(b"\0")
        mechanisms = [name for name in offered if not name.endswith(CHANNEL_BINDING_SUFFIX)]
        self._awaits_sasl_response, self._removed_channel_binding = True, mechanisms != offered
        return body[:4] + b"\0".join(mechanisms)

    def _read_parameter(self, body: bytes) -> None:
        name, value, *_ = [*body.split(b"\0"), b"", b""]
        if name == b"client_encoding":
            self._encoding = value.decode("ascii", "replace")
        elif name == b"standard_conforming_strings":
            self._conforming_strings = value == b"on"

    def _hide_description(self) -> bytes:
        if self._requests.is_oldest(RequestKind.QUERY):
            self._hides_rows = True
            return b""
        self._requests.complete(RequestKind.DESCRIBE_STATEMENT, RequestKind.DESCRIBE_PORTAL)
        return NO_DATA

    def _complete_translated(self) -> bytes:
        request, rewritten = self._requests.oldest, self._requests.rewritten
        assert request is not None and rewritten is not None
        tag = rewritten.tags[request.completed]
        if request.kind is RequestKind.QUERY:
            self._hides_rows = False
            request.completed += 1
        else:
            self._requests.complete(RequestKind.EXECUTE)
        return command_complete(tag)

    # ── errors and notices ──────────────────────────────────────────────────────────────────────────────────────────

    def _restore_positions(self, body: bytes) -> bytes:
        """The fields of an error or a notice about rewritten text, as they are about the client's text."""
        fields, rewritten = decode_fields(body), self._requests.rewritten
        if fields is None or rewritten is None:
            return body
        values = dict(fields)
        if not values.get(b"P", b"").isdigit():
            return body
        position = rewritten.query.original_position(int(values[b"P"]) - 1)
        fields = replace_field(fields, b"P", str(position + 1).encode())
        return encode_fields(self._explain(fields, values.get(b"C", b""), position, rewritten))

    def _explain(self, fields: Fields, sqlstate: bytes, position: int, rewritten: RewrittenQuery) -> Fields:
        """The error of a publish/subscribe statement, in its words."""
        if sqlstate == SYNTAX_ERROR:
            for wrong in rewritten.wrong:
                if wrong.span.start <= position <= wrong.span.end:
                    return self._set_message(fields, wrong.diagnostic)
        for translation in rewritten.translations:
            name = translation.event_type
            if sqlstate == UNDEFINED_FUNCTION and name is not None and name.span.start == position:
                message = dict(fields).get(b"M", b"").decode(errors="replace")
                return self._set_message(fields, refused_values(name, message))
        if sqlstate == INVALID_SCHEMA_NAME and rewritten.translations:
            hint = "Install it in this database: smile postgres install URL."
            return replace_field(fields, b"H", hint.encode())
        return fields

    def _set_message(self, fields: Fields, diagnostic: Diagnostic) -> Fields:
        assert diagnostic.span is not None
        fields = replace_field(fields, b"M", encode_text(diagnostic.message, self._encoding))
        fields = replace_field(fields, b"P", str(diagnostic.span.start + 1).encode())
        return replace_field(fields, b"H", encode_text(diagnostic.hint, self._encoding)) if diagnostic.hint else fields


def _channel_binding_error(message: str) -> SmileError:
    hint = "Connect with channel_binding=disable, or from the proxy to the server without TLS."
    return error("E160", message, hint=hint)
