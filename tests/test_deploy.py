"""The unit, the image and the example settings are what docs/running.md says of them."""

import configparser
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from smile.cli.main import app
from smile.settings import SETTINGS, read_settings

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
DOCUMENT = (ROOT / "docs" / "running.md").read_text()
SMILE = "/opt/smile/bin/smile"


class Unit(configparser.RawConfigParser):
    optionxform = staticmethod(str)  # type: ignore[assignment]  # names as they are written


def unit() -> Unit:
    read = Unit(strict=True, interpolation=None)
    read.read_string((DEPLOY / "smile.service").read_text())
    return read


def image() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, with what they say."""
    text = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def said(instruction: str) -> list[str]:
    return [rest for name, rest in image() if name == instruction]


def documented() -> list[list[str]]:
    """Every command of the document, in words."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    lines = re.sub(r"\\\n", " ", "".join(block for language, block in blocks if not language)).splitlines()
    return [shlex.split(line, comments=True) for line in lines]


def serve(words: list[str]) -> None:
    """The command is one that there is, with options that there are."""
    assert words[0].endswith("smile")
    commands = get_command(app).commands  # type: ignore[attr-defined]  # a Typer with commands is a group
    assert words[1] in commands, words
    command = commands[words[1]]
    command = getattr(command, "commands", {}).get("".join(words[2:3]), command)  # of a group, such as smile origin
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in words if word.startswith("--")} <= options, words


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    # SMILE is not installed where the unit says; everything else is as it is.
    copy = tmp_path / "smile.service"
    copy.write_text((DEPLOY / "smile.service").read_text().replace(SMILE, shutil.which("true") or ""))
    process = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=60
    )
    assert (process.returncode, process.stderr) == (0, "")


def test_the_unit_is_what_the_document_says() -> None:
    service = unit()["Service"]
    words = shlex.split(service["ExecStart"])
    serve(words)
    program, config = words[2], words[words.index("--config") + 1]
    commands = documented()
    installed = {words[-1]: words[-2] for words in commands if words[0] == "install"}
    assert {program, config, "/etc/systemd/system/smile.service"} == set(installed)
    assert all((ROOT / source).is_file() for source in installed.values())
    assert installed["/etc/systemd/system/smile.service"] == "deploy/smile.service"
    assert ["systemctl", "enable", "--now", "smile.service"] in commands
    assert ["python3", "-m", "venv", str(Path(SMILE).parent.parent)] in commands
    assert ["useradd", "--system", "--home-dir", service["WorkingDirectory"], service["User"]] in commands
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"
    # Java makes code as it runs.
    assert "MemoryDenyWriteExecute" not in service
    # SIGTERM finishes cleanly, and Spark must not get it before the broker has done with it.
    assert (service["KillSignal"], service["KillMode"]) == ("SIGTERM", "mixed")


def test_the_unit_and_the_example_settings_agree() -> None:
    service = unit()["Service"]
    settings = read_settings(str(DEPLOY / "smile.toml"), {}, {})
    settings.require_safe()
    assert settings.data == service["WorkingDirectory"]
    assert tomllib.loads((DEPLOY / "smile.toml").read_text()).keys() <= SETTINGS.keys()


def test_the_image_is_what_the_document_says() -> None:
    serve([*exec_form(said("ENTRYPOINT")[0]), *exec_form(said("CMD")[0])])
    runs = " ; ".join(said("RUN"))
    environment = dict(word.split("=", 1) for word in " ".join(said("ENV")).split())
    settings = read_settings(None, environment, {})
    assert all(variable[6:].lower() in SETTINGS for variable in environment)
    assert said("VOLUME") == said("WORKDIR") == [settings.data]
    assert said("EXPOSE") == [" ".join(place.rsplit(":", 1)[1] for place in (settings.listen, settings.flight))]
    assert said("STOPSIGNAL") == ["SIGTERM"]
    assert said("USER") == ["smile"]
    assert settings.requires_tokens
    assert f"python -m venv {Path(SMILE).parent.parent}" in runs
    assert "openjdk-17" in runs
    uid = re.search(r"--uid (\d+)", runs)
    assert uid and f"the user {uid[1]}" in DOCUMENT
    # It is installed from the same files, in the same way.
    pip = [words for words in documented() if words[0].endswith("/pip")]
    assert [words[1:4] for words in pip] == [["install", "--constraint", "requirements.lock"]]
    assert '/opt/smile/bin/pip install --no-cache-dir --constraint /build/requirements.lock "/build[all]"' in runs
    for source in " ".join(rest.rsplit(" ", 1)[0] for rest in said("COPY")).split():
        assert (ROOT / source).exists(), source


def test_the_image_has_what_the_package_is_made_of() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    copied = set(" ".join(rest.rsplit(" ", 1)[0] for rest in said("COPY")).split())
    needed = {project["project"]["readme"], *project["project"]["license-files"], "pyproject.toml", "src"}
    assert needed <= copied
    python = re.search(r"python:(\d+\.\d+)", said("FROM")[0])
    assert python and f">={python[1]}" == project["project"]["requires-python"]


def exec_form(text: str) -> list[str]:
    return [str(word) for word in tomllib.loads(f"a = {text}")["a"]]


def test_the_containers_of_the_document_start() -> None:
    """Each container has the settings that it needs to listen beyond loopback, and its files and data are where the
    image has them."""
    image_environment = dict(word.split("=", 1) for word in " ".join(said("ENV")).split())
    runs = [words for words in documented() if words[:2] == ["docker", "run"]]
    assert len(runs) == 2
    for words in runs:
        given = {name: words[i + 1] for i, name in enumerate(words) if name == "--env"}
        assert given
        environment = dict(words[i + 1].split("=", 1) for i, name in enumerate(words) if name == "--env")
        settings = read_settings(str(DEPLOY / "smile.toml"), image_environment | environment, {})
        settings.require_safe()
        assert settings.requires_tokens
        volumes = [words[i + 1].split(":") for i, name in enumerate(words) if name == "--volume"]
        assert [volume[1] for volume in volumes] == [settings.data, "/etc/smile"]
        assert words[-1] == "smile"
    assert ["docker", "build", "-f", "deploy/Dockerfile", "-t", "smile", "."] in documented()
    copies = [words[2] for words in documented() if words[0] == "cp" and words[-1].startswith("config/")]
    assert {"config/smile.toml", "config/program.smile"} <= set(copies)


def test_every_command_of_the_document_exists() -> None:
    known = {"openssl", "python3", "useradd", "install", "systemctl", "mkdir", "cp"}
    for words in documented():
        if words[:2] == ["sudo", "-u"]:
            words = words[3:]
        if words[:2] == ["docker", "exec"]:
            words = words[3:]
        if words[0] in known or words[0].endswith("/pip") or words[0] == "docker":
            continue
        serve(words)
