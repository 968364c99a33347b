"""The interactive prompt: lines with history, and completion of keywords and names."""

import os
import re
import sys
from pathlib import Path

from smile.cli.shell.shell import Shell, ShellError, print_error

KEYWORDS = """ADVERTISE ADVERTISEMENT ALTER AND AS AUDITABLE BEGIN BY COMMIT COPY CREATE DEFERRED DELETE DOMAIN DROP
EVENT EXECUTE FROM GLOBAL GRANT GROUP GUARANTEED IMMEDIATE IMPORT INSERT INTO KNOWLEDGE LIMIT LINK LOCAL NON-AUDITABLE
NON-GUARANTEED NOT NULL ON OR ORDER PUBLISH QUEUE REPUBLISHER
REVOKE ROLLBACK RULE SELECT SET STREAM SUBSCRIBE SUBSCRIPTION TABLE TO
TYPE UPDATE USING VALUES VIEW WHERE WITH""".split()
_WORD = re.compile(r"[^\s,()=<>;]+")


def run_prompt(shell: Shell) -> None:
    """Reads statements until \\q or the end of the input."""
    # prompt_toolkit takes a while to load, and other commands do not need it.
    from prompt_toolkit import PromptSession  # noqa: PLC0415
    from prompt_toolkit.completion import WordCompleter  # noqa: PLC0415
    from prompt_toolkit.history import FileHistory  # noqa: PLC0415

    names = NameCompleter(shell)
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(_history_file())),
        completer=WordCompleter(names.words, ignore_case=True, pattern=_WORD),
        complete_while_typing=False,
    )
    rest = ""
    while not shell.is_ended:
        try:
            line = session.prompt("   ...> " if rest else "smile=> ")
        except KeyboardInterrupt:
            rest = ""
            continue
        except EOFError:
            return
        try:
            rest = shell.feed(f"{rest}{line}\n")
        except ShellError as problem:
            rest = ""
            print_error(problem)
        except KeyboardInterrupt:
            rest = ""
            print("interrupted", file=sys.stderr)
        if not rest:
            names.refresh()


class NameCompleter:
    """Keywords, and the names that the broker and the database had before the current statement."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._words: list[str] = KEYWORDS
        self.refresh()

    def refresh(self) -> None:
        """In a transaction, the names stay as they are."""
        if self._shell.is_in_transaction:
            return
        names = self._shell.fetch_names()
        relations = [name for kind in names.values() for name in kind]
        columns = [column.split(" ")[0] for kind in names.values() for listed in kind.values() for column in listed]
        self._words = [*dict.fromkeys([*relations, *columns]), *KEYWORDS]

    def words(self) -> list[str]:
        return self._words


def _history_file() -> Path:
    """In the directory for state of the user. If it cannot be made, there is no history."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "smile"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return Path(os.devnull)
    return folder / "sql_history"
