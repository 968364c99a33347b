"""The glossary names each concept once, and every place that it names exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\| (?P<word>[^|]+?) \| (?P<meaning>[^|]+?) \| (?P<place>[^|]*?) ?\|$")


def rows() -> list[tuple[str, str]]:
    """The word and the place of every entry."""
    lines = (ROOT / "docs" / "glossary.md").read_text().splitlines()
    matches = [ROW.match(line) for line in lines if line.startswith("| ") and not line.startswith("| word ")]
    assert matches and all(matches)
    return [(match["word"], match["place"]) for match in matches if match]


def names_defined_in(module: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_every_concept_has_one_word() -> None:
    words = [word.strip() for entry, _ in rows() for word in entry.split(",")]
    assert sorted(words) == sorted(set(words))


def test_every_place_exists() -> None:
    for word, place in rows():
        if not place:
            continue
        match = re.fullmatch(r"`(?P<module>[\w/]+\.(?:py|sql))(?:: (?P<name>\w+))?`", place)
        assert match, f"{word}: {place} is not `folder/module.py`, `folder/file.sql` or `folder/module.py: Name`"
        module = ROOT / "src" / "smile" / match["module"]
        assert module.exists(), f"{word}: there is no {match['module']}"
        if match["name"]:
            assert match["name"] in names_defined_in(module), (
                f"{word}: {match['module']} does not define {match['name']}"
            )
