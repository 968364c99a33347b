"""The words that the console's editor shows in colours: keywords, functions and types."""

from smile.algebra.types import SIMPLE_TYPES
from smile.lang.keywords import SQL_WORDS
from smile.translate.function_names import CALLABLE_FUNCTIONS, SYNONYMS

_LINE_CHARS = 116
_OTHER_TYPES = {"decimal", "relation", "text", "varchar", "double", "bigint"}


def sql_words_module() -> str:
    types = {*SIMPLE_TYPES, *_OTHER_TYPES}
    keywords = {word.lower() for word in SQL_WORDS} - types
    functions = {name for name in (*CALLABLE_FUNCTIONS, *SYNONYMS) if name.isidentifier()} - keywords - types
    lists = {"KEYWORDS": keywords, "FUNCTIONS": functions, "TYPES": types}
    parts = [f"export const {name} =\n{_lines(sorted(words))};\n" for name, words in lists.items()]
    return "/** The words of SmileSQL. `make reference` writes this file from the parser. */\n\n" + "\n".join(parts)


def _lines(words: list[str]) -> str:
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) > _LINE_CHARS:
            lines.append("")
        lines[-1] += f"{word} "
    lines[-1] = lines[-1].rstrip()
    return " +\n".join(f'  "{line}"' for line in lines)
