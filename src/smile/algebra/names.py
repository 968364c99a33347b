"""The grammar of MMPL, and names as it writes them."""

import re
from collections.abc import Iterable
from importlib.resources import files
from typing import Final

GRAMMAR: Final = files("smile.algebra").joinpath("mmpl.lark").read_text("utf-8")
KEYWORDS: Final = frozenset(re.findall(r'"([A-Z_]+)"', GRAMMAR))
_BARE_NAME: Final = re.compile(re.findall(r"^NAME: /(.*)/$", GRAMMAR, re.MULTILINE)[0])


def name_text(name: str) -> str:
    if _BARE_NAME.fullmatch(name) and name not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def names_text(names: Iterable[str]) -> str:
    return "{" + ", ".join(map(name_text, names)) + "}"
