"""The commands, as their user runs them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import Result

from smile import __version__
from tests.processes import SMILE, WAIT_S, clean_environment, invoke_smile

FLOOR = """\
CREATE STREAM BuyBids (buyid: time -> issue: string, price: centspersshare, #bid: shares);
CREATE STREAM SellBids (sellid: time -> issue: string, price: centspersshare, #bid: shares);
CREATE STREAM Matches (t: time -> buyid: time, sellid: time, #traded: shares);
CREATE VIEW BuySatisfied (SELECT buyid, SUM(#traded) AS total FROM Matches GROUP BY buyid);
CREATE VIEW SellSatisfied (SELECT sellid, SUM(#traded) AS total FROM Matches GROUP BY sellid);
CREATE VIEW RemainingBuy (SELECT buyid, issue, price, (#bid - total) as buyremaining
  FROM BuyBids JOIN BuySatisfied USING(buyid) WHERE buyremaining > 0);
CREATE VIEW RemainingSell (SELECT sellid, issue, price, (#bid - total) as sellremaining
  FROM SellBids JOIN SellSatisfied USING(sellid) WHERE sellremaining > 0);
CREATE VIEW Matchable (SELECT * FROM RemainingBuy JOIN RemainingSell USING(issue, price));
subscriptions RemainingBuy, RemainingSell, Matchable;
"""


@pytest.fixture
def floor(tmp_path: Path) -> str:
    path = tmp_path / "floor.smile"
    path.write_text(FLOOR)
    return str(path)


def smile(*args: str, stdin: str | None = None) -> Result:
    return invoke_smile(*args, stdin=stdin)


def explained(*args: str) -> dict[str, object]:
    result = smile("explain", *args, "--json")
    assert result.exit_code == 0, result.stderr
    parsed: dict[str, object] = json.loads(result.stdout)
    return parsed


# ── check ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_check_says_what_it_found(floor: str) -> None:
    result = smile("check", floor)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"{floor}: ok: 3 streams, 5 views, 3 subscriptions, 2 stages\n"


def test_check_reads_standard_input() -> None:
    assert smile("check", "-", stdin=FLOOR).exit_code == 0


def test_check_reads_mmpl(tmp_path: Path, floor: str) -> None:
    path = tmp_path / "floor.mmpl"
    path.write_text(smile("explain", floor, "--as", "mmpl").stdout)
    assert "5 views, 3 subscriptions, 2 stages" in smile("check", str(path)).stdout
    assert smile("explain", str(path), "--as", "stages").stdout == smile("explain", floor, "--as", "stages").stdout


def test_a_warning_is_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "p.smile"
    path.write_text(
        "CREATE STREAM S (t: time -> k: string);\nCREATE VIEW V AS SELECT k, COUNT(*) AS n FROM S GROUP BY k;"
    )
    result = smile("check", str(path))
    assert result.exit_code == 0
    assert "1 warning" in result.stdout
    assert "W001: V keeps n for each k for good" in result.stderr
    assert "every new k: S may have one more event for any k at any time" in result.stderr


@pytest.mark.parametrize(
    ("view", "warning"),
    [
        ("SELECT window_start, COUNT(*) AS n FROM HOP(S, t, INTERVAL '1' SECOND, INTERVAL '{}' SECOND) GROUP BY window_start",
         "W003: every row of V is in 101 windows"),
        ("SELECT S.t AS t, R.u AS u FROM S JOIN {} AS R ON S.n < R.m", "W004: V compares every row of one side"),
    ],
)  # fmt: skip
def test_expensive_views_are_warned_of(tmp_path: Path, view: str, warning: str) -> None:
    path = tmp_path / "p.smile"
    streams = "CREATE STREAM S (t: time -> n: int);\nCREATE STREAM R (u: time -> m: int);\n"
    # One row on one side is as good as a condition.
    cheap, dear = ("100", "101") if "HOP" in view else ("(SELECT COUNT(*) AS m, 1 AS u FROM R)", "R")
    path.write_text(f"{streams}CREATE VIEW V AS {view.format(dear)};")
    result = smile("check", str(path))
    assert result.exit_code == 0
    assert warning in result.stderr
    path.write_text(f"{streams}CREATE VIEW V AS {view.format(cheap)};")
    assert warning[:4] not in smile("check", str(path)).stderr


def test_a_predicate_that_the_types_decide_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "p.smile"
    path.write_text(
        "CREATE STREAM S (t: time -> n: shares NOT NULL);\nCREATE VIEW V AS SELECT n FROM S WHERE n >= 0 AND n < 5;"
    )
    assert "2:40: warning W002: n >= 0 is always true" in smile("check", str(path)).stderr


def test_errors_go_to_standard_error_with_exit_code_1(tmp_path: Path) -> None:
    path = tmp_path / "p.smile"
    path.write_text("CREATE STREAM S (t: time -> a: int);\nCREATE VIEW V AS SELECT b FROM S;\n")
    result = smile("check", str(path))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"{path}:2:25: error E022: there is no column b\n")


# ── explain ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_types_of_the_paper(floor: str) -> None:
    relations = explained(floor, "--as", "types")["relations"]
    assert isinstance(relations, dict)
    total = relations["BuySatisfied"]["columns"]["total"]
    assert (total["range"], total["steps"], total["direction"]) == ([0, "MAXTIME*MAXTRADED"], "MAXTIME", "up")
    remaining = relations["RemainingBuy"]["columns"]["buyremaining"]
    assert (remaining["domain"], remaining["steps"], remaining["direction"]) == ("masked range", "MAXTIME + 1", "down")
    assert relations["RemainingBuy"]["mask"] == {
        "initial": "f",
        "course": "falls for good",
        "steps": 2,
        "final": ["F"],
    }
    assert relations["Matchable"]["key"] == ["buyid", "sellid"]
    assert relations["Matchable"]["seals"] == {"BuyBids": "buyid", "SellBids": "sellid", "Matches": None}


def test_stages_of_the_paper(floor: str) -> None:
    output = explained(floor, "--as", "stages")
    assert [stage["by"] for stage in output["stages"]] == [["buyid", "sellid"], ["issue, price"]]  # type: ignore[attr-defined]
    assert output["paths"]["Matchable"] == ["BuyBids, SellBids, Matches", "stage 1", "stage 2", "Matchable"]  # type: ignore[index]


def test_text_and_json_name_the_same(floor: str) -> None:
    for step in ("types", "graph", "stages"):
        text = smile("explain", floor, "--as", step).stdout
        for name in ("BuySatisfied", "RemainingSell", "Matchable"):
            assert name in text
            assert name in json.dumps(explained(floor, "--as", step))


def test_one_view_and_what_it_is_made_from(floor: str) -> None:
    text = smile("explain", floor, "--as", "mmpl", "--view", "remainingbuy").stdout
    assert "VIEW RemainingBuy" in text
    assert "VIEW BuySatisfied" in text
    assert "Sell" not in text.replace("sellid", "")
    assert text.rstrip().endswith("SUBSCRIBE RemainingBuy;")


def test_dot_is_a_graph_that_names_every_relation(floor: str) -> None:
    text = smile("explain", floor, "--as", "graph", "--dot").stdout
    assert text.startswith("digraph knowledge {")
    assert '"Matches" -> "BuySatisfied" [label="SUMMARIZE PER {buyid} ADD {total := SUM(#traded)}"];' in text
    assert text.count("->") == 15


def test_mermaid_escapes_what_would_end_a_label(floor: str) -> None:
    text = smile("explain", floor, "--as", "graph", "--mermaid").stdout
    assert text.startswith("flowchart LR")
    assert "SUM(#35;traded)" in text
    assert "buyremaining #gt; DECIMAL" in text


# ── misuse, and bad input ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "args",
    [
        ("explain", "{floor}", "--as", "nonsense"),
        ("explain", "{floor}", "--as", "types", "--dot"),
        ("explain", "{floor}", "--as", "graph", "--dot", "--json"),
        ("explain", "{floor}", "--view", "Nothing"),
        ("check",),
        ("nonsense",),
    ],
)
def test_misuse_is_exit_code_2(args: tuple[str, ...], floor: str) -> None:
    result = smile(*(a.format(floor=floor) for a in args))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "E004"),
        (b"-- only a comment\n", "E004"),
        (bytes(range(256)), "E002"),
        (b"\x7fELF\x02\x01\x01\x00" + bytes(100), None),
        (b"CREATE STREAM S (t: time -> a: string); CREATE VIEW V AS SELECT 'abc FROM S;", "E011"),
        (b"CREATE VIEW V AS SELECT " + b"(" * 10_000 + b"1" + b")" * 10_000 + b" FROM S;", "E012"),
        (b"x" * (4 * 2**20 + 1), "E003"),
        (b"a " * 2**19, None),
        (b"CREATE VIEW A AS SELECT * FROM B; CREATE VIEW B AS SELECT * FROM A;", "E024"),
        (b"CREATE VIEW A AS SELECT * FROM Nothing;", "E021"),
        ("CREATE STREAM größe (zeit: time -> länge: int); CREATE VIEW V AS SELECT lange FROM größe;".encode(), "E022"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
@pytest.mark.parametrize("suffix", [".smile", ".mmpl"])
def test_bad_files_get_a_code_and_no_traceback(content: bytes, code: str | None, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(content)
    result = smile("check", str(path))
    assert (result.exit_code, result.stdout) == (1, "")
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.startswith(str(path))
    assert "error E" in result.stderr
    if suffix == ".smile" and code is not None:
        assert f"error {code}:" in result.stderr
    assert len(result.stderr) < 10_000


def test_who_reads_an_unreadable_view_is_not_blamed(tmp_path: Path) -> None:
    path = tmp_path / "p.smile"
    path.write_text(
        "CREATE STREAM S (t: time -> a: int); CREATE VIEW V AS SELEC a FROM S; CREATE VIEW W AS SELECT a FROM V; SUBSCRIBE V, W;"
    )
    assert [line for line in smile("check", str(path)).stderr.splitlines() if "error" in line] == [
        f"{path}:1:55: error E010: expected SELECT but found SELEC"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE VIEW V AS SELECT 1 AS x;", "1:18: error E040: a query without FROM has no key"),
        ("CREATE STREAM S (a: int);", "1:18: error E040: the stream has no tick: there is no column before ->"),
        ("CREATE STREAM S (a int);", "1:15: error E040: stream S has no TIME KEY column"),
        ("CREATE STREAM S (a: int -> b: int);", "1:21: error E040: the key of a stream is a time, but a is int"),
    ],
)
def test_what_has_no_key_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "p.smile"
    path.write_text(text)
    assert smile("check", str(path)).stderr.startswith(f"{path}:{message}\n")


def test_no_such_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.smile", tmp_path):
        result = smile("check", str(path))
        assert result.exit_code == 1
        assert "error E001" in result.stderr


def test_a_hundred_errors_are_counted_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "p.smile"
    path.write_text("".join(f"CREATE VIEW V{i} AS SELECT * FROM Nowhere;\n" for i in range(90)))
    assert smile("check", str(path)).stderr.rstrip().endswith("… and 70 more")


# ── as a process ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_version_and_help_teach() -> None:
    assert smile("--version").stdout == f"smile {__version__}\n"
    text = smile("explain", "--help").stdout
    for word in ("mmpl", "types", "graph", "stages", "--json", "--dot", "--mermaid", "--view", "Example"):
        assert word in text


def test_a_reader_that_goes_away_is_no_error(floor: str) -> None:
    command = f"{SMILE} explain {floor} --as types | head -n 1"
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=clean_environment(),
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "STREAM BuyBids  key buyid\n"


def test_an_internal_error_is_said_to_be_ours(floor: str) -> None:
    broken = "import smile.cli.main as m; import smile.program as p; p.compile_program = lambda *_, **__: 1 / 0; import sys; sys.argv = ['smile', 'check', sys.argv[1]]; m.main()"
    result = subprocess.run(
        [sys.executable, "-c", broken, floor], capture_output=True, text=True, timeout=WAIT_S, env=clean_environment()
    )
    assert result.returncode == 70
    assert result.stderr.startswith("smile: internal error: ZeroDivisionError")
    assert "Traceback" not in result.stderr


def test_all_errors_of_one_view_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "p.smile"
    path.write_text(
        "CREATE STREAM Q (t: time -> issue: string, price: int);\n"
        "CREATE VIEW V AS SELECT issue, prise, foo(price) AS f FROM Q WHERE price > 'high' AND issu = 'x' AND f > 1;"
    )
    codes = [line.split(": ")[1] for line in smile("check", str(path)).stderr.splitlines() if ": error " in line]
    assert codes == ["error E022", "error E026", "error E033", "error E022"]


def test_a_view_that_is_nested_too_deeply_blames_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "p.smile"
    deep = "(" * 300 + "a" + ")" * 300
    path.write_text(
        f"CREATE STREAM S (t: time -> a: int); CREATE VIEW V AS SELECT {deep} AS a FROM S; "
        "CREATE VIEW W AS SELECT a FROM V; SUBSCRIBE V, W;"
    )
    assert smile("check", str(path)).stderr.count(": error ") == 1


def test_a_full_disk_is_not_our_fault(floor: str) -> None:
    command = f"{SMILE} explain {floor} > /dev/full"
    result = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=WAIT_S, env=clean_environment()
    )
    assert (result.returncode, result.stderr) == (1, "smile: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize(
    ("view", "code"),
    [
        ("S RENAME {a AS b, a AS c}", "E020"),
        ("S SUMMARIZE PER {k, k} ADD {n := COUNT()}", "E020"),
        ("S SUMMARIZE PER {k} ADD {n := GROUP {a, a}}", "E020"),
        ("S BEST 0 BY a PER {}", "E033"),
        ("S SEMIJOIN (S RENAME {t AS u}) ON {k, k}", "E020"),
        ("S SUMMARIZE PER {k} ADD {g := GROUP {a}} PROJECT {g} DISTINCT", "E031"),
        ("S TUMBLE v SIZE INTERVAL '5' TICK", "E046"),
        ("S FULL JOIN (S RENAME {t AS u, a AS b, v AS w}) ON {k} WHEN a > b", "E040"),
    ],
)
def test_mmpl_is_checked_as_sql_is(view: str, code: str, tmp_path: Path) -> None:
    path = tmp_path / "p.mmpl"
    path.write_text(f"STREAM S (t: time -> a: int, k: string, v: timestamp);\nVIEW V := {view};")
    assert f"{path}:2:" in (errors := smile("check", str(path)).stderr)
    assert f"error {code}:" in errors


def test_a_stream_has_each_column_once(tmp_path: Path) -> None:
    path = tmp_path / "p.mmpl"
    path.write_text("STREAM S (t: time -> k: int, t: int);")
    assert "error E020" in smile("check", str(path)).stderr


def test_checks_that_nothing_can_satisfy(tmp_path: Path) -> None:
    path = tmp_path / "p.mmpl"
    path.write_text("STREAM S (t: time -> k: int) CHECK k > 5 CHECK k < 3; VIEW V := S; SUBSCRIBE V;")
    assert "W002: no value of k satisfies the checks of S" in smile("check", str(path)).stderr
    path.write_text(
        "STREAM S (t: time -> k: int) CHECK k IS NOT NULL CHECK k > 5 CHECK k < 3; VIEW V := S; SUBSCRIBE V;"
    )
    assert "W002: no event satisfies the checks of S" in smile("check", str(path)).stderr


# ── imports ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_program_is_checked_against_recorded_types(floor: str, tmp_path: Path) -> None:
    importing = tmp_path / "importing.smile"
    importing.write_text(
        "IMPORT RemainingBuy FROM buys;\n"
        "CREATE VIEW Dear AS SELECT buyid, buyremaining FROM RemainingBuy WHERE price > 100;\nSUBSCRIBE Dear;\n"
    )
    refused = smile("check", str(importing))
    assert refused.exit_code == 1
    assert "importing.smile:1:1: error E027: no types of the broker buys are recorded" in refused.stderr
    assert "hint: Give them with --imports FILE." in refused.stderr
    exports = smile("explain", floor, "--as", "exports", "--broker", "buys")
    recorded = tmp_path / "buys.json"
    recorded.write_text(exports.stdout)
    checked = smile("check", str(importing), "--imports", str(recorded))
    assert checked.stdout == f"{importing}: ok: 1 import, 0 streams, 1 view, 1 subscription, 1 stage\n"
    types = smile("explain", str(importing), "--imports", str(recorded)).stdout
    assert "IMPORT RemainingBuy  key buyid  (from buys)" in types
    assert "RemainingBuy  a cache: rows that are lost are imported again" in types
    mmpl_path = tmp_path / "importing.mmpl"
    mmpl_path.write_text(smile("explain", str(importing), "--imports", str(recorded), "--as", "mmpl").stdout)
    assert smile("check", str(mmpl_path)).exit_code == 0  # the text has the definition
    for form in ("--dot", "--mermaid", "--json"):
        graph = smile("explain", str(importing), "--imports", str(recorded), "--as", "graph", form)
        assert "RemainingBuy//changes" in graph.stdout
    (tmp_path / "none.events").write_text("")
    options = ("--events", str(tmp_path / "none.events"), "--engine", "local", "--imports", str(recorded))
    replayed = smile("replay", str(importing), *options)
    assert "E048: recorded events have no rows of the imported view RemainingBuy" in replayed.stderr


def test_exports_need_the_name_of_the_broker(floor: str) -> None:
    assert smile("explain", floor, "--as", "exports").exit_code == 2
    assert smile("explain", floor, "--broker", "buys").exit_code == 2
