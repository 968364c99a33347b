"""A program in the style means the same as before, has the same comments, and is in the style already."""

import re
from pathlib import Path
from random import Random

import pytest

from smile.errors import SmileError
from smile.lang import format_program
from smile.lang.lexer import read_lexemes
from smile.program import compile_program
from smile.source import Source
from tests.processes import invoke_smile
from tests.programs.reader import cases
from tests.repeatable import scaled

ROOT = Path(__file__).parents[2]
PROGRAMS = {str(p.relative_to(ROOT)): p.read_text() for p in sorted((ROOT / "programs").rglob("*.smile"))}
PROGRAMS |= {c.name: c.compiled.source.text for c in cases() if c.compiled.source.name.endswith(".smile")}


def formatted(text: str) -> str:
    return format_program(Source("program.smile", text))


def comments(text: str) -> list[str]:
    return [
        text[lexeme.start : lexeme.end].rstrip()
        for lexeme in read_lexemes(text)
        if lexeme.kind in ("remark", "comment")
    ]


def words(text: str) -> list[str]:
    kinds = ("space", "remark", "comment", "end")
    return [
        written.upper() if lexeme.kind == "word" else written
        for lexeme in read_lexemes(text)
        if lexeme.kind not in kinds and (written := text[lexeme.start : lexeme.end])
    ]


def check(text: str) -> str:
    """`format_program` compares the parsed programs itself."""
    once = formatted(text)
    assert formatted(once) == once
    assert comments(once) == comments(text)
    assert words(once) == words(text)
    assert not re.search(r"[ \t]$", once, re.MULTILINE) or "'" in once
    return once


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_of_the_repository(name: str) -> None:
    check(PROGRAMS[name])


def test_the_compiled_program_is_the_same() -> None:
    for name in ("programs/scoreboard.smile", "programs/tradefloor.smile", "programs/sensors.smile"):
        before = compile_program(Source("program.smile", PROGRAMS[name]))
        after = compile_program(Source("program.smile", formatted(PROGRAMS[name])))
        assert after.rewritten == before.rewritten


COMMENTS = ["-- a remark\n", "/* a comment */", "/* of two\n   lines */", "\n-- a remark\n", "\n/* alone */\n", "--\n"]


@pytest.mark.parametrize("seed", range(scaled(60)))
def test_spaces_and_comments_anywhere(seed: int) -> None:
    """Comments and blank lines between any two tokens of a program. Without comments, spaces make no difference."""
    random = Random(seed)
    text = PROGRAMS[random.choice(list(PROGRAMS))]
    has_comments = random.random() < 0.7
    pieces = []
    for lexeme in read_lexemes(text):
        written = text[lexeme.start : lexeme.end]
        if lexeme.kind in ("remark", "comment"):
            pieces += [written + "\n"] if has_comments else [" "]
        elif lexeme.kind == "space":
            pieces.append(random.choice([" ", "\n", "\n\n", "\t", "  \r\n "]))
        else:
            pieces.append(written)
        if has_comments and random.random() < 0.05:
            pieces.append(f" {random.choice(COMMENTS)} ")
    changed = "".join(pieces)
    once = check(changed)
    if not has_comments:
        flat = formatted(re.sub(r"\s+", " ", changed) if "'" not in changed else changed)
        assert re.sub(r"\n+", "\n", flat) == re.sub(r"\n+", "\n", once)


STYLE = """\
-- Head

CREATE DOMAIN d AS int CHECK (VALUE BETWEEN -1 AND 10) NOT NULL; -- beside it
CREATE STREAM "a b" (t: time -> x: d, y: decimal(9, 2) CHECK (y > - -1)) WITH (TICKS = PUBLISHER);
CREATE VIEW Sums (x, n) AS
  SELECT x, COUNT(*) FROM "a b" WHERE y = -1 AND x - 1 > 0 GROUP BY x;

CREATE VIEW Long AS
  SELECT
    x, -- the first
    -- the second
    SUM(y) FILTER (WHERE y > 0) AS total,
    CASE
      WHEN x = 1 THEN 'one'
      WHEN x BETWEEN 2 AND 3 THEN 'a few of them, and a text that makes the line long'
      ELSE 'many'
      END AS size
  FROM "a b"
  LEFT JOIN Sums USING (x)
  WHERE x IN (
      SELECT x
      FROM Sums
      WHERE n > 5 AND x IS DISTINCT FROM 7 -- seven is special, which the line says
    )
    AND CAST(y AS int) > 0
  GROUP BY x
  UNION ALL
  SELECT *
  FROM Elsewhere;

SUBSCRIBE Sums, Long;
"""


def test_the_style() -> None:
    squeezed = re.sub(r"(?<!-)\n +", "\n", STYLE).replace("SELECT", "select").replace(" AS ", " as ")
    assert formatted(squeezed) == STYLE


def test_a_keyword_that_is_a_name_keeps_its_case() -> None:
    text = "CREATE STREAM S (t: time -> best: int);\ncreate view V as\n  select best, t from S;\n"
    once = check(text)
    assert "best" in once


@pytest.mark.parametrize(
    "text", ["CREATE VIEW V AS SELECT", "CREATE STREAM S (t: time -> a: int", "/* open", "", "x ; 'y"]
)
def test_what_cannot_be_parsed_is_refused(text: str) -> None:
    with pytest.raises(SmileError):
        formatted(text)


def test_deep_nesting() -> None:
    depth = 150
    check(f"CREATE STREAM S (t: time -> a: int); CREATE VIEW V AS SELECT {'(' * depth}a{')' * depth} AS a FROM S;")


def test_the_command(tmp_path: Path) -> None:
    good, bad, wrong = tmp_path / "good.smile", tmp_path / "bad.smile", tmp_path / "wrong.smile"
    good.write_text("SUBSCRIBE V;\n")
    bad.write_text("subscribe   V")
    wrong.write_text("CREATE VIEW")
    names = [path.name for path in (good, bad, wrong)]
    done = invoke_smile("fmt", "--check", *names, cwd=tmp_path)
    assert (done.exit_code, done.stderr.splitlines()[0]) == (1, "bad.smile is not in the style")
    assert "wrong.smile:1:12: error E010" in done.stderr
    assert bad.read_text() == "subscribe   V"
    done = invoke_smile("fmt", *names[:2], cwd=tmp_path)
    assert (done.exit_code, done.stderr) == (0, "bad.smile is changed\n")
    assert bad.read_text() == "SUBSCRIBE V;\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    refused = invoke_smile("fmt", "-", stdin="CREATE VIEW V AS\nSELEC 1;")
    assert (refused.exit_code, "  SELEC 1;\n  ^^^^^\n" in refused.stderr) == (1, True), refused.stderr
    done = invoke_smile("fmt", "-", stdin="subscribe  W")
    assert (done.exit_code, done.stdout) == (0, "SUBSCRIBE W;\n")
    (tmp_path / "p.mmpl").write_text("")
    assert "E168" in invoke_smile("fmt", "p.mmpl", cwd=tmp_path).stderr
