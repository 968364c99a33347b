"""`CREATE TABLE … AS FILE`: the rows of a file beside the program become part of the program."""

from pathlib import Path

import httpx
import pytest

from smile import limits
from smile.program import compile_program, read_program
from smile.source import Source
from tests.brokers import InProcessBroker
from tests.processes import invoke_smile

PROGRAM = """
CREATE TABLE Countries (code string PRIMARY KEY, name string NOT NULL, people int) STATIC AS FILE 'data/countries.csv';
CREATE STREAM Visits (t: time -> country: string);
CREATE VIEW Named AS SELECT t, name, people FROM Visits JOIN Countries ON country = code;
"""
ROWS = 'name,code,people\nSwitzerland,CH,8900000\n"Côte d\'Ivoire",CI,\n'


def written(folder: Path, rows: str = ROWS, program: str = PROGRAM) -> str:
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "countries.csv").write_text(rows)
    (folder / "p.smile").write_text(program)
    return str(folder / "p.smile")


def test_the_rows_are_values_of_the_program(tmp_path: Path) -> None:
    path = written(tmp_path)
    inline = "VALUES ('CH', 'Switzerland', 8900000), ('CI', 'Côte d''Ivoire', NULL)"
    expected = compile_program(Source(path, PROGRAM.replace("FILE 'data/countries.csv'", inline)))
    assert compile_program(read_program(path)).original == expected.original


def test_positions_of_errors_stay_in_their_lines(tmp_path: Path) -> None:
    result = invoke_smile("check", written(tmp_path, program=PROGRAM.replace("people FROM", "peple FROM")))
    assert f"{tmp_path}/p.smile:4:38: error E022: there is no column peple" in result.stderr


@pytest.mark.parametrize(
    ("rows", "code", "what"),
    [
        ("code,nam\nCH,x\n", "E215", "table Countries has no column nam"),
        ("code,name,code\nCH,x,CH\n", "E215", "the column code is there twice"),
        ("code,name\nCH\n", "E215", "line 2: 1 fields, but the first line has 2 columns"),
        ('code,name\nCH,"x\n', "E215", "not CSV"),
        ("code,name\n", "E215", "has no rows"),
        ("", "E215", "has no rows"),
        ("code,name\nCH,x\nCH,y\n", "E212", "has the key of another row"),
        ("code,name,people\nCH,x,many\n", "E033", "'many' is not an int"),
        ("code,name\nCH,\n", "E212", "violates"),
        ("x" * (limits.table_file_bytes_max + 1), "E214", "the limit is 1,048,576"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, rows: str, code: str, what: str) -> None:
    result = invoke_smile("check", written(tmp_path, rows))
    assert result.exit_code == 1
    assert f"error {code}: " in result.stderr
    assert what in result.stderr


@pytest.mark.parametrize("name", ["none.csv", "../p.smile", "/etc/hostname"])
def test_files_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    result = invoke_smile("check", written(tmp_path, program=PROGRAM.replace("data/countries.csv", name)))
    assert result.exit_code == 1
    assert "error E214: " in result.stderr


def test_a_program_that_is_laid_out_keeps_the_name(tmp_path: Path) -> None:
    path = Path(written(tmp_path))
    assert invoke_smile("fmt", str(path)).exit_code == 0
    assert "AS FILE 'data/countries.csv'" in path.read_text()


def test_a_broker_reads_no_file(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "broker") as broker, broker.http() as http:
        answer: httpx.Response = http.post(
            "/program/check", content=PROGRAM.encode(), headers={"content-type": "text/x-smilesql"}
        )
        assert "E214" in answer.text
        assert "which is not here" in answer.text


def test_a_test_file_of_a_program_with_a_file(tmp_path: Path) -> None:
    written(tmp_path)
    test = tmp_path / "p.test"
    rows = "Named | t | name | people |\n | @1 | Switzerland | 8900000 | final\n"
    test.write_text(
        f'--- program p.smile\n--- views Named\n\n--- events\nVisits @1 {{"country": "CH"}}\n\n--- rows end\n{rows}'
    )
    assert invoke_smile("test", str(test)).exit_code == 0
