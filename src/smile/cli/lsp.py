"""`smile lsp`: the language server for editors."""

import typer

from smile.cli import options
from smile.cli.exits import error_exit
from smile.cli.loading import loading
from smile.errors import SmileError
from smile.extras import libraries_of


def lsp(imports: options.ImportsOption = None) -> None:
    """Run the language server for an editor, which starts it and talks to it over standard input and output.

    It shows errors and warnings as one types, types and finality of relations and columns, completes names, and lays
    out programs. docs/howto/editor.md has the settings of Neovim and Visual Studio Code.
    """
    try:
        with loading(), libraries_of("lsp"):
            from smile.cli.language_server.server import create_server  # noqa: PLC0415
            from smile.program import read_recorded_types  # noqa: PLC0415
        create_server(read_recorded_types(imports or ())).start_io()
    except SmileError as problem:
        raise error_exit(problem) from None


def register(app: typer.Typer) -> None:
    app.command()(lsp)
