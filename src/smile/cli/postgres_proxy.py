"""`smile postgres proxy`: lets any client of PostgreSQL send publish/subscribe statements to an unchanged server."""

import asyncio
import ipaddress
import signal
import ssl
import sys
from typing import Annotated

import typer

from smile import limits
from smile.cli.exits import error_exit
from smile.errors import SmileError, error


def proxy(
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where clients connect.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="URL",
            help="The server: postgresql://HOST:PORT, and for TLS ?sslmode=verify-full&sslrootcert=FILE. sslmode is "
            "disable, prefer, require, verify-ca or verify-full [default: prefer].",
        ),
    ],
    tls_cert: Annotated[
        str | None, typer.Option("--tls-cert", metavar="FILE", help="The certificate that clients see.")
    ] = None,
    tls_key: Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="Its key.")] = None,
    connections_max: Annotated[
        int, typer.Option("--connections-max", min=1, help="Connections at a time.")
    ] = limits.proxy_connections_max,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond this machine without TLS, in a trusted network.")
    ] = False,
) -> None:
    """Relay connections of clients to a PostgreSQL server, and translate publish/subscribe statements.

    Everything else passes through unchanged. Clients log in as they do without the proxy, but without channel binding.
    The server sees the address of the proxy: a rule in pg_hba.conf that trusts this address trusts all clients.

    Example: smile postgres proxy --listen 127.0.0.1:6432 --to postgresql://127.0.0.1:5432
    """
    try:
        host, port = _parse_address(listen)
        context = _tls_context(tls_cert, tls_key)
        if context is None and not insecure and not _is_loopback(host):
            hint = "Use --tls-cert and --tls-key, listen on 127.0.0.1, or use --insecure in a trusted network."
            raise error("E107", f"{host} is not a loopback address, and there is no TLS", hint=hint)
        asyncio.run(_run(host, port, to, context, connections_max))
    except SmileError as problem:
        raise error_exit(problem) from None
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


async def _run(host: str, port: int, url: str, context: ssl.SSLContext | None, connections_max: int) -> None:
    from smile.postgres.proxy.proxy import PostgresProxy  # noqa: PLC0415  # other commands do not need it
    from smile.postgres.proxy.target import parse_target  # noqa: PLC0415

    target = parse_target(url)
    relay = PostgresProxy(target, context, connections_max)
    try:
        server = await relay.listen(host, port)
    except OSError as problem:
        raise error("E106", f"cannot listen on {host}:{port}: {problem.strerror}") from None
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    print(f"smile: listening on {host}:{port}, relaying to {target}", file=sys.stderr, flush=True)
    await stop.wait()
    server.close()
    await relay.stop()


def _parse_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise error("E100", f"{address} is not HOST:PORT", hint="An example is 127.0.0.1:6432.")
    return host.strip("[]"), int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _tls_context(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise error("E100", "--tls-cert and --tls-key belong together")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as problem:
        raise error("E100", f"the certificate in {certificate} or its key in {key} cannot be used: {problem}") from None
    return context


def register(app: typer.Typer) -> None:
    app.command()(proxy)
