"""The words that editors know are those that the parser expects."""

import ast
import re
from pathlib import Path

import smile.lang
from smile.lang.keywords import SQL_WORDS

CALLS = {"skip", "is_at", "expect", "_match_text_seq"}
"""The methods with which the parser asks for a word."""
NO_PARSERS = {"formatting.py", "keywords.py", "layout.py", "printer.py"}


def words_of_the_parser() -> set[str]:
    words: set[str] = set()
    for path in Path(smile.lang.__file__).parent.glob("*.py"):
        if path.name in NO_PARSERS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in CALLS:
                words |= {a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    return {word for word in words if re.fullmatch(r"[A-Z_]+", word)}


def test_every_word_that_the_parser_expects_is_a_keyword() -> None:
    expected = words_of_the_parser()
    assert {"CREATE", "DOMAIN", "SUBSCRIBE", "PUBLISHER"} <= expected
    assert expected - SQL_WORDS == set()


def test_keywords_of_clauses_and_windows() -> None:
    assert {"SESSION", "LEAD", "LAG", "QUALIFY", "FILTER", "BEST", "PER", "TUMBLE", "ASOF", "MERGE"} <= SQL_WORDS
