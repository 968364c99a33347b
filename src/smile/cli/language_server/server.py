"""The language server: connects documents of an editor with `ProgramDocument`, over standard input and output."""

import asyncio
from pathlib import PurePath

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from smile import __version__
from smile.analysis.recorded_types import RecordedTypes
from smile.cli.language_server.document import CompletionKind, ProgramDocument
from smile.errors import Diagnostic
from smile.source import Span

PAUSE_S = 0.2
"""A text is checked when its author has paused for so long: a check takes about as long."""

KINDS = {
    CompletionKind.keyword: types.CompletionItemKind.Keyword,
    CompletionKind.function: types.CompletionItemKind.Function,
    CompletionKind.relation: types.CompletionItemKind.Class,
    CompletionKind.column: types.CompletionItemKind.Field,
}


def create_server(recorded: RecordedTypes) -> LanguageServer:
    """`recorded` has the types of what programs import."""
    server = LanguageServer("smile", __version__)
    documents: dict[str, ProgramDocument] = {}

    def current(uri: str) -> tuple[TextDocument, ProgramDocument]:
        """The document as the editor has it now."""
        document = server.workspace.get_text_document(uri)
        if uri not in documents:
            documents[uri] = ProgramDocument(PurePath(document.path).name, recorded)
        documents[uri].write(document.source)
        return document, documents[uri]

    def publish_diagnostics(uri: str) -> None:
        document, program = current(uri)
        diagnostics = [_diagnostic(document, diagnostic) for diagnostic in program.check()]
        server.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri=document.uri, version=document.version, diagnostics=diagnostics)
        )

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def open_document(params: types.DidOpenTextDocumentParams) -> None:
        publish_diagnostics(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def change_document(params: types.DidChangeTextDocumentParams) -> None:
        uri, version = params.text_document.uri, params.text_document.version
        await asyncio.sleep(PAUSE_S)
        if uri in documents and server.workspace.get_text_document(uri).version == version:
            publish_diagnostics(uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def close_document(params: types.DidCloseTextDocumentParams) -> None:
        documents.pop(params.text_document.uri, None)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        document, program = current(params.text_document.uri)
        found = program.hover(document.offset_at_position(params.position))
        if found is None:
            return None
        content = types.MarkupContent(types.MarkupKind.Markdown, f"```text\n{found.text}\n```")
        return types.Hover(content, _range(document, found.span))

    @server.feature(types.TEXT_DOCUMENT_COMPLETION)
    def complete(params: types.CompletionParams) -> list[types.CompletionItem]:
        document, program = current(params.text_document.uri)
        found = program.completions(document.offset_at_position(params.position))
        return [types.CompletionItem(c.label, kind=KINDS[c.kind], detail=c.detail or None) for c in found]

    @server.feature(types.TEXT_DOCUMENT_FORMATTING)
    def format_document(params: types.DocumentFormattingParams) -> list[types.TextEdit] | None:
        document, program = current(params.text_document.uri)
        text = program.formatted()
        if text is None or text == document.source:
            return None
        return [types.TextEdit(_range(document, Span(0, len(document.source))), text)]

    return server


def _diagnostic(document: TextDocument, diagnostic: Diagnostic) -> types.Diagnostic:
    """The hint is a paragraph of its own. What has no position is shown at the beginning."""
    severity = types.DiagnosticSeverity.Warning if diagnostic.is_warning else types.DiagnosticSeverity.Error
    hint = f"\nhint: {diagnostic.hint}" if diagnostic.hint else ""
    span = diagnostic.span or Span(0, 0)
    return types.Diagnostic(
        _range(document, span), diagnostic.message + hint, severity=severity, code=diagnostic.code, source="smile"
    )


def _range(document: TextDocument, span: Span) -> types.Range:
    return types.Range(*(document.client_position_at_offset(offset) for offset in (span.start, span.end)))
