"""Settings from a file, the environment and flags, each overriding the last; and every one of them documented."""

import json
import random
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from smile.errors import SmileError
from smile.settings import (
    NEIGHBOUR_SETTINGS,
    POSTGRES_SETTINGS,
    SETTINGS,
    SINK_SETTINGS,
    SOURCE_SETTINGS,
    NeighbourSettings,
    Setting,
    Settings,
    Value,
    is_loopback,
    parse_address,
    postgres_variable,
    read_settings,
    table_variable,
)
from tests.repeatable import scaled

ROOT = Path(__file__).parent.parent
RUNNING = ROOT / "docs" / "running.md"

OTHER: dict[str, Value] = {
    "name": "floor_2",
    "data": "elsewhere",
    "listen": "[::1]:0",
    "flight": "",
    "engine": "local",
    "master": "spark://a:7077",
    "partitions": 7,
    "flush": False,
    "origin": 1023,
    "keep": "7 days",
    "away_max": "2 hours",
    "lease": "3 seconds",
    "silence_ms": 5,
    "idle_ms": 6,
    "auth": True,
    "tls_cert": "c.pem",
    "tls_key": "k.pem",
    "insecure": True,
    "origins": ("https://a.example", "http://[::1]:8080"),
    "hosts": ("a.example", "::1"),
    "tour": "tour.json",
    "message_bytes_max": 11,
    "bulk_bytes_max": 12,
    "connections_max": 13,
    "connections_per_address_max": 12,
    "subscriptions_max": 14,
    "subscriptions_per_connection_max": 15,
    "snapshot_rows_max": 16,
    "lag_s_max": 5,
    "disk_free_min": 10**6,
    "memory_max": 10**9,
    "view_memory_max": 10**8,
    "events_per_second_max": 17,
    "requests_per_second_max": 18,
    "advertise": False,
    "log_format": "text",
    "log_level": "debug",
}
"""Of each setting a value that is not its default."""


def toml(value: Value) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def text(value: Value) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def complaint(config: str | None = None, environment: Any = None, **flags: Any) -> str:
    with pytest.raises(SmileError) as caught:
        read_settings(config, environment or {}, flags)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code in ("E100", "E107")
    return f"{diagnostic.message} / {diagnostic.hint}"


def test_the_defaults_are_right() -> None:
    assert read_settings(None, {}, {}) == Settings()
    Settings().require_safe()
    assert not Settings().requires_tokens


def test_every_setting_is_tried_here() -> None:
    assert set(OTHER) == set(SETTINGS)
    assert all(OTHER[name] != setting.default for name, setting in SETTINGS.items())


@pytest.mark.parametrize("seed", range(scaled(20)))
def test_each_source_overrides_the_last(tmp_path: Path, seed: int) -> None:
    """Every setting is said in any of the three, or in none; what is said last holds."""
    chance = random.Random(seed)
    file, environment, expected = [], {}, {}
    flags: dict[str, str | bool | None] = {}
    for name, setting in SETTINGS.items():
        # TLS needs both: both are said, or neither.
        is_set = [chance.random() < 0.5 for _ in range(3)] if not name.startswith("tls") else [True, False, False]
        values = [chance.choice([OTHER[name], setting.default or OTHER[name]]) for _ in range(3)]
        if name.startswith("tls"):
            values = [OTHER[name]] * 3
        if is_set[0]:
            file.append(f"{name} = {toml(values[0])}")
        if is_set[1]:
            environment[setting.variable] = text(values[1])
        if is_set[2]:
            flag = values[2]
            flags[name] = flag if isinstance(flag, bool) else text(flag)
        expected[name] = next((v for v, t in reversed(list(zip(values, is_set, strict=True))) if t), setting.default)
    config = tmp_path / "smile.toml"
    config.write_text("\n".join(file))
    read = read_settings(str(config), environment, flags)
    assert {name: getattr(read, name) for name in SETTINGS} == expected
    assert read == read_settings(None, environment | {"SMILE_CONFIG": str(config)}, flags)


WRONG: list[tuple[str, str, str]] = [
    ("name", "the floor", '"the floor" is not a name of a broker / Write a letter, then letters, digits'),
    ("name", "", '"" is not a name of a broker'),
    ("data", "", "it must not be empty"),
    ("listen", "7400", '"7400" is not HOST:PORT / Write 127.0.0.1:7400, or [::1]:7400.'),
    ("listen", "a:70000", '"a:70000" is not HOST:PORT'),
    ("listen", "a:65536", '"a:65536" is not HOST:PORT'),
    ("flight", "::1:7401", '"::1:7401" is not HOST:PORT'),
    ("engine", "sprk", '"sprk" is none of spark, local / Did you mean spark?'),
    ("partitions", "0", "0 is not between 1 and 1000"),
    ("partitions", "two", '"two" is not a whole number'),
    ("partitions", "9" * 30, "is not a whole number"),
    ("flush", "yes", '"yes" is neither true nor false'),
    ("origin", "1024", "1024 is not between 0 and 1023"),
    ("keep", "7 dyas", '"7 dyas" is neither forever nor an interval / Write 12 hours, or 7 days.'),
    ("silence_ms", "0", "0 is not between 1"),
    ("origins", "https://a.example/", '"https://a.example/" is not an origin'),
    ("hosts", "a.example:80", '"a.example:80" is not the name of a host'),
    ("connections_max", "-1", "-1 is not between 1"),
    ("log_level", "loud", '"loud" is none of debug, info, warning, error'),
    ("data", "a\0b", "it is too long, or has unprintable characters"),
]


@pytest.mark.parametrize(("name", "value", "message"), WRONG)
def test_a_wrong_value_is_refused_with_its_place(name: str, value: str, message: str, tmp_path: Path) -> None:
    setting = SETTINGS[name]
    assert complaint(environment={setting.variable: value}).startswith(f"environment, {setting.variable}: ")
    assert message in complaint(environment={setting.variable: value})
    if not setting.is_switch:
        assert complaint(**{name: value}).startswith(f"{setting.flag}: ")
    if setting.kind is str:
        config = tmp_path / "smile.toml"
        config.write_text(f"{name} = {json.dumps(value)}")
        assert complaint(str(config)).startswith(f"{config}, {name}: ")
        with pytest.raises(SmileError, match=f"^{name}: "):
            Settings(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("listn = 'a:1'", "listn: there is no such setting / Did you mean listen?"),
        ("hue = 'red'", "hue: there is no such setting / See docs/running.md for all of them."),
        ("[smile]\nlisten = 'a:1'", "smile: there is no such setting"),
        ("listen = 7400", "listen: it must be text, in quotes"),
        ("partitions = '2'", "partitions: it must be a whole number, without quotes"),
        ("partitions = true", "partitions: it must be a whole number, without quotes"),
        ("partitions = 1.5", "partitions: it must be a whole number, without quotes"),
        ("flush = 'true'", "flush: it must be true or false, without quotes"),
        ("flush = 1", "flush: it must be true or false, without quotes"),
        ("hosts = 'a'", 'hosts: it must be a list of text / Write ["a", "b"].'),
        ("hosts = [1]", "hosts: it must be a list of text"),
        ("listen = no", "is not TOML: Invalid value (at line 1, column 10)"),
        ("listen = 'a:1'\nlisten = 'a:2'", "is not TOML: "),
        ("tls_key = '''-----BEGIN\nPRIVATE'''", "tls_key: it is too long, or has unprintable characters"),
        pytest.param("hosts = " + "[" * 100_000, "is not TOML: ", id="deep"),
    ],
)
def test_a_wrong_file_is_refused_with_the_key(lines: str, message: str, tmp_path: Path) -> None:
    config = tmp_path / "smile.toml"
    config.write_text(lines)
    assert complaint(str(config)).startswith(str(config))
    assert message in complaint(str(config))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert (
        complaint(str(tmp_path / "no.toml")) == f"{tmp_path}/no.toml cannot be read: No such file or directory / None"
    )
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    assert "is not TOML: it is not valid text" in complaint(str(tmp_path / "bytes"))
    (tmp_path / "large").write_text("# \n" * 2**20)
    assert "is larger than 1,048,576 bytes" in complaint(str(tmp_path / "large"))


def test_variables_of_others_are_left_alone() -> None:
    """Kubernetes sets some for every service that is called smile; clients have their own."""
    others = {
        "SMILE_PORT": "tcp://10.0.0.1:7400",
        "SMILE_PORT_7400_TCP_ADDR": "10.0.0.1",
        "SMILE_SERVICE_HOST": "10.0.0.1",
        "SMILE_URL": "http://a",
        "SMILE_TOKEN": "t",
        "SMILE_DEBUG": "1",
        "SMILE_SEEDS": "17",
        "smile_listen": "nonsense",
        "LISTEN": "nonsense",
    }
    assert read_settings(None, others, {}) == Settings()
    assert "environment, SMILE_LISTN: there is no such setting" in complaint(environment={"SMILE_LISTN": "a:1"})


def test_neighbours_come_from_the_file_and_the_environment(tmp_path: Path) -> None:
    config = tmp_path / "smile.toml"
    config.write_text("name = 'floor'\n[brokers.Buys]\nurl = 'http://b:1'\ntoken = 'file'\n[brokers.sells]\n")
    variables = {
        "SMILE_BROKERS_BUYS_TOKEN": "t",
        "SMILE_BROKERS_BUYS_CA": "b.pem",
        "SMILE_BROKERS_A_B_URL": "https://[::1], http://c",
    }
    read = read_settings(str(config), variables, {})
    assert read.name == "floor"
    assert read.brokers == {
        "Buys": NeighbourSettings(url=("http://b:1",), token="t", ca="b.pem"),
        "sells": NeighbourSettings(),
        "a_b": NeighbourSettings(url=("https://[::1]", "http://c")),
    }


def test_tokens_of_neighbours_are_not_displayed() -> None:
    settings = Settings(brokers={"buys": NeighbourSettings(token="secret")})
    assert "secret" not in f"{settings} {settings!r}"
    assert "secret" not in complaint(environment={"SMILE_BROKERS_BUYS_TOKEN": "secret text"})


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("brokers = 3", "brokers: it must be a table of tables / Write a table for each broker"),
        ("brokers.buys = 'http://a'", "brokers: it must be a table of tables"),
        ("[brokers.buys]\nurll = ''", "brokers.buys.urll: there is no such setting / Did you mean url?"),
        ("[brokers.buys]\nurl = 'ftp://a'", 'brokers.buys.url: "ftp://a" is not a URL of a broker / Write https://'),
        ("[brokers.buys]\nurl = 'http://a/b'", '"http://a/b" is not a URL of a broker'),
        ("[brokers.buys]\nurl = 'http://u:p@a'", "is not a URL of a broker"),
        ("[brokers.buys]\nurl = 'http://a:65536'", "is not a URL of a broker"),
        ("[brokers.buys]\ntoken = 'a b'", "brokers.buys.token: it has characters that are not allowed in a token"),
        ("[brokers.buys]\ntoken = 7", "brokers.buys.token: it must be text, in quotes"),
        ("[brokers.'a b']", 'brokers.a b: "a b" is not a name of a broker'),
        ("name = 'a'\n[brokers.a]", "brokers.a: this broker has the same name"),
    ],
)
def test_a_wrong_neighbour_is_refused(lines: str, message: str, tmp_path: Path) -> None:
    config = tmp_path / "smile.toml"
    config.write_text(lines)
    assert message in complaint(str(config))


def test_the_database_comes_from_the_file_and_the_environment(tmp_path: Path) -> None:
    config = tmp_path / "smile.toml"
    config.write_text("[postgres]\nurl = 'postgresql://db/shop'\n")
    assert read_settings(str(config), {}, {}).postgres.url == "postgresql://db/shop"
    read = read_settings(str(config), {"SMILE_POSTGRES_URL": "host=db dbname=a password=secret"}, {})
    assert read.postgres.url == "host=db dbname=a password=secret"
    assert "secret" not in f"{read} {read!r}"
    assert read_settings(None, {}, {}).postgres.url == ""


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("postgres = 'postgresql://a'", "postgres: it must be a table / Write [postgres]"),
        ("[postgres]\nurll = ''", "postgres.urll: there is no such setting / Did you mean url?"),
        ("[postgres]\nurl = 'http://secret@a'", "postgres.url: it is not a connection string of PostgreSQL"),
    ],
)
def test_a_wrong_database_is_refused(lines: str, message: str, tmp_path: Path) -> None:
    config = tmp_path / "smile.toml"
    config.write_text(lines)
    assert message in complaint(str(config))
    assert "secret" not in complaint(str(config))
    assert "SMILE_POSTGRES_URLL: there is no such setting" in complaint(environment={"SMILE_POSTGRES_URLL": "x"})


def test_wrong_variables_of_neighbours_are_refused() -> None:
    for variable in ("SMILE_BROKERS_TOKEN", "SMILE_BROKERS_BUYS_TOKN", "SMILE_BROKERS__URL"):
        assert f"environment, {variable}: there is no such setting" in complaint(environment={variable: "x"})
    assert '"7" is not a name of a broker' in complaint(environment={"SMILE_BROKERS_7_URL": "http://a"})


def test_tls_needs_both_files() -> None:
    assert complaint(tls_cert="c") == "tls_cert is set, but tls_key is not / TLS needs both files."
    assert complaint(tls_key="k") == "tls_key is set, but tls_cert is not / TLS needs both files."


@pytest.mark.parametrize("seed", range(scaled(30)))
def test_only_what_is_safe_is_served(seed: int) -> None:
    """Beyond loopback: TLS and tokens, unless a setting says that the network is trusted."""
    chance = random.Random(seed)
    places = [("127.0.0.1", True), ("[::1]", True), ("localhost", True), ("0.0.0.0", False), ("a.example", False)]
    (one, near), (two, near_too) = chance.choice(places), chance.choice([*places, ("", True)])
    cert = chance.choice(["", "c.pem"])
    auth = chance.choice([None, True, False])
    insecure = chance.random() < 0.3
    settings = Settings(
        listen=f"{one}:1",
        flight=f"{two}:2" if two else "",
        tls_cert=cert,
        tls_key=cert,
        auth=auth,
        insecure=insecure,
    )
    loopback = near and near_too
    assert settings.is_on_loopback == loopback
    assert settings.requires_tokens == (not loopback if auth is None else auth)
    if loopback or insecure or (cert and auth is not False):
        settings.require_safe()
    else:
        with pytest.raises(SmileError, match="is not a loopback address") as caught:
            settings.require_safe()
        assert caught.value.diagnostics[0].code == "E107"


def test_addresses() -> None:
    assert parse_address("127.0.0.1:7400") == ("127.0.0.1", 7400)
    assert parse_address("[::1]:0") == ("::1", 0)
    for port in (0, 9, 80, 59_999, 60_000, 65_535):
        assert parse_address(Settings(listen=f"a:{port}").listen) == ("a", port)
    assert [is_loopback(h) for h in ("127.8.9.1", "::1", "LocalHost", "0.0.0.0", "::", "localhost.example")] == [
        *[True] * 3,
        *[False] * 3,
    ]


@pytest.mark.parametrize(
    ("keep", "seconds"),
    [("forever", None), ("0 seconds", 0), ("90 second", 90), ("2 Minutes", 120), ("1hour", 3_600), ("7 days", 604_800)],
)
def test_how_long_events_are_kept(keep: str, seconds: int | None) -> None:
    assert Settings(keep=keep).retention_us == (None if seconds is None else seconds * 1_000_000)


def row(setting: Setting) -> str:
    """The setting's line in the documentation."""
    default = "" if setting.default is None else f"`{toml(setting.default)}`"
    flag = f"{setting.flag}` `--no-{setting.flag[2:]}" if setting.is_switch else f"{setting.flag} {setting.placeholder}"
    return f"| `{setting.name}` | `{setting.variable}` | `{flag}` | {default} | {setting.meaning} |"


def test_every_setting_is_documented() -> None:
    """With its name, variable, flag, default and meaning as the code has them, in the code's order."""
    documented = [line for line in RUNNING.read_text().splitlines() if re.match(r"\| `\w+` \| `SMILE_", line)]
    assert documented == [row(setting) for setting in SETTINGS.values()] + [
        f"| `{setting.name}` | `{table_variable('brokers', 'NAME', setting)}` | {setting.meaning} |"
        for setting in NEIGHBOUR_SETTINGS.values()
    ] + [
        f"| `{setting.name}` | `{table_variable(table, 'NAME', setting)}` | {setting.meaning} |"
        for table, settings in (("sources", SOURCE_SETTINGS), ("sinks", SINK_SETTINGS))
        for setting in settings.values()
    ] + [
        f"| `{setting.name}` | `{postgres_variable(setting)}` | {setting.meaning} |"
        for setting in POSTGRES_SETTINGS.values()
    ]


def test_the_example_file_is_right(tmp_path: Path) -> None:
    example = ROOT / "deploy" / "smile.toml"
    read_settings(str(example), {}, {})
    # What is commented out is right too, and together all settings are there with their defaults or others.
    uncommented = re.sub(
        r"^# ?(\w+ = |\[brokers\.|\[sources\.|\[sinks\.|\[postgres)", r"\1", example.read_text(), flags=re.MULTILINE
    )
    uncommented_file = tmp_path / "smile.toml"
    uncommented_file.write_text(uncommented)
    assert read_settings(str(uncommented_file), {}, {}).brokers["buys"].url
    assert set(tomllib.loads(uncommented)) <= {*SETTINGS, "brokers", "sources", "sinks", "postgres"}


if __name__ == "__main__":
    print("\n".join(row(setting) for setting in SETTINGS.values()))  # noqa: T201


@pytest.mark.parametrize("setting", ["ca", "types"])
def test_files_of_neighbours_must_be_there(tmp_path: Path, setting: str) -> None:
    path = tmp_path / "file"
    settings = Settings(brokers={"buys": msgspec.convert({setting: str(path)}, NeighbourSettings)})
    with pytest.raises(SmileError, match=f"brokers.buys.{setting}: {path} cannot be read: No such file") as problem:
        settings.require_files()
    assert problem.value.diagnostics[0].code == "E100"
    path.write_text("")
    settings.require_files()
