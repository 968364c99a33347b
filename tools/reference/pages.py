"""The generated pages: their paths, and what they have to contain."""

from pathlib import Path

from tools.reference.client import client_page
from tools.reference.commands import commands_page
from tools.reference.error_codes import errors_page
from tools.reference.functions import functions_page
from tools.reference.http import http_page
from tools.reference.metrics import metrics_page
from tools.reference.peers import with_peer_figures
from tools.reference.sql_words import sql_words_module

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
SQL_WORDS = ROOT / "clients" / "console" / "src" / "components" / "sql-words.ts"
WITH_FIGURES = (ROOT / "README.md", ROOT / "docs" / "comparison.md")


def pages() -> dict[Path, str]:
    generated = {
        "functions": functions_page,
        "commands": commands_page,
        "http": http_page,
        "python": client_page,
        "errors": errors_page,
        "metrics": metrics_page,
    }
    written = {REFERENCE / f"{name}.md": page() for name, page in generated.items()}
    written[SQL_WORDS] = sql_words_module()
    return written | {path: with_peer_figures(path.read_text()) for path in WITH_FIGURES}
