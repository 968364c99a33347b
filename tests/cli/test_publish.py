"""`smile publish`: every line is published once, or refused with its number."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.client.fake import BEGIN, Fake
from tests.processes import SMILE, WAIT_S, clean_environment, invoke_smile
from tests.repeatable import scaled


@pytest.fixture
def fake() -> Iterator[Fake]:
    server = Fake()
    yield server
    server.close()


def published(fake: Fake) -> list[str]:
    return [k for _, k in fake.store.events]


def test_events_as_arguments(fake: Fake) -> None:
    done = invoke_smile("publish", "S", '{"k":"a"}', '{"k":"b"}', "--ticks", "--url", fake.url)
    assert (done.exit_code, done.stdout) == (0, f"{BEGIN}\n{BEGIN + 1024}\n")
    assert done.stderr.startswith("2 events published in ")
    assert published(fake) == ["a", "b"]


def test_lines_of_standard_input(fake: Fake) -> None:
    done = invoke_smile("publish", "S", stdin='{"k":"a"}\n\n  {"k":"é"}\r\n{"k":"c"}', SMILE_URL=fake.url)
    assert (done.exit_code, done.stdout) == (0, "")
    assert published(fake) == ["a", "é", "c"]


def test_a_file(fake: Fake, tmp_path: Path) -> None:
    keys = [f"{i}" * (1 + i % 40) for i in range(20_000)]
    path = tmp_path / "events"
    path.write_text("".join(json.dumps({"k": k}) + "\n" for k in keys))
    done = invoke_smile("publish", "S", "--file", str(path), "--url", fake.url)
    assert done.exit_code == 0, done.stderr
    assert done.stderr.startswith("20,000 events published in ")
    assert published(fake) == keys


@pytest.mark.slow
def test_lines_are_published_as_they_come(fake: Fake) -> None:
    """And a broker that is lost meanwhile is waited for."""
    command = [SMILE, "publish", "S", "--ticks", "--url", fake.url]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(4):
            process.stdin.write(f'{{"k":"{number}"}}\n')
            process.stdin.flush()
            assert process.stdout.readline() == f"{BEGIN + 1024 * number}\n"
            fake.restart()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=WAIT_S)
    assert (process.returncode, said.partition(" in ")[0]) == (130, "4 events published")
    assert published(fake) == ["0", "1", "2", "3"]


BAD = {
    "E078": '{"k":7}',
    "E073": '{"k":',
    "E074": "[1]",
    "E072": b'{"k":"\xff"}',
}


@pytest.mark.parametrize(("code", "line"), BAD.items(), ids=list(BAD))
def test_a_bad_line_ends_it(fake: Fake, code: str, line: str | bytes) -> None:
    bad = line.encode() if isinstance(line, str) else line
    lines = [b'{"k":"%d"}' % i for i in range(9)]
    done = invoke_smile("publish", "S", stdin=b"\n".join([*lines[:6], bad, *lines[6:]]), SMILE_URL=fake.url)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"standard input:7: error {code}: "), done.stderr
    assert "6 events published" in done.stderr
    assert published(fake) == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize("seed", range(scaled(3)))
def test_bad_lines_are_passed_over(fake: Fake, seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    lines = [random.choice(['{"k":7}', "nothing"]) if random.random() < 0.02 else f'{{"k":"{i}"}}' for i in range(1000)]
    bad = [i for i, line in enumerate(lines, 1) if line in ('{"k":7}', "nothing")]
    path = tmp_path / "e"
    path.write_text("\n".join(lines))
    done = invoke_smile("publish", "S", "--file", str(path), "--skip-bad", "--url", fake.url)
    assert done.exit_code == 0
    numbers = [int(line.split(":")[1]) for line in done.stderr.splitlines() if line.startswith(f"{path}:")]
    assert numbers == bad
    assert f"; {len(bad)} lines refused" in done.stderr
    assert published(fake) == [json.loads(line)["k"] for i, line in enumerate(lines, 1) if i not in bad]


def test_what_is_wrong_with_all_of_it(fake: Fake, tmp_path: Path) -> None:
    done = invoke_smile("publish", "T", '{"k":"a"}', "--skip-bad", "--url", fake.url)
    assert (done.exit_code, done.stderr) == (1, "smile: error E076: no stream T\n")
    done = invoke_smile("publish", "S", "--file", str(tmp_path / "none"), "--url", fake.url)
    assert (done.exit_code, done.stderr) == (1, f"smile: {tmp_path}/none cannot be read: No such file or directory\n")
    assert invoke_smile("publish", "S", '{"k":"a"}', "--file", "x", "--url", fake.url).exit_code == 2
    assert invoke_smile("publish", "S", '{"k":"a"}', "--url", "nowhere").exit_code == 2
    table = invoke_smile("publish", "S", "-", stdin="k\na\n", SMILE_URL=fake.url)
    assert (table.exit_code, "Name the file of a table" in table.stderr) == (1, True), table.stderr
    long = invoke_smile("publish", "S", stdin='{"k":"' + "x" * 2**21, SMILE_URL=fake.url)
    assert (long.exit_code, "line 1 is longer than" in long.stderr) == (1, True)


def test_a_line_that_no_message_can_hold_ends_it(fake: Fake) -> None:
    done = invoke_smile("publish", "S", stdin='{"k":"' + "x" * (2**20 - 20) + '"}\n', SMILE_URL=fake.url)
    assert (done.exit_code, "error E092" in done.stderr) == (1, True)


@pytest.mark.slow  # it is waited for
def test_nobody_there(fake: Fake) -> None:
    fake.stop()
    done = invoke_smile("publish", "S", '{"k":"a"}', "--url", fake.url)
    fake.start()
    assert done.exit_code == 1
    assert done.stderr.startswith(f"smile: error E103: {fake.url}: Connection refused\n  hint: Is it running?")
