"""Changes the kernels at random places, one at a time, and reports which changes no test notices:
`python -m tools.mutants [--count N] [--seed N] [FILE…]`.

A mutant is a copy of `src` in which one operator or constant is another one. It is killed if a test fails, and survives
otherwise. A survivor shows a hole in the tests, or code that makes no difference. The exit code is 1 if more than
SURVIVORS_MAX of the mutants survive.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "smile"
FOLDERS: Final = ("kernels", "columns", "state")
SURVIVORS_MAX: Final = 0.25
TEST_SECONDS_MAX: Final = 300
"""A mutant whose tests take longer does not end, and is killed."""
PYTEST: Final = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "2"]
SUITES: Final = (
    [
        "-m",
        "not slow and not nightly",
        "tests/columns",
        "tests/state",
        "tests/kernels",
        "tests/engine/test_programs.py",
    ],
    ["-m", "not nightly", "tests/engine/test_colliding_hashes.py", "tests/engine/test_random_programs.py"],
    ["-m", "not nightly", "tests/kernels", "tests/columns", "tests/state"],
)
"""The fast tests come first: they kill most mutants."""

REPLACEMENTS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add,
}  # fmt: skip


@dataclass(frozen=True)
class Mutation:
    """The change of the expression with this number in a walk through the module."""

    path: Path
    number: int
    line: int
    description: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(PACKAGE)}:{self.line}: {self.description}"

    def apply(self, package: Path) -> None:
        """Changes the module in a copy of the package."""
        tree = ast.parse(self.path.read_text())
        node = list(ast.walk(tree))[self.number]
        changed = changed_expression(node)
        assert changed is not None
        mutant = ast.fix_missing_locations(_Replacement(node, changed).visit(tree))
        (package / self.path.relative_to(PACKAGE)).write_text(ast.unparse(mutant))


class _Replacement(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.expr) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def mutations(path: Path) -> Iterator[Mutation]:
    """All changes of one module. Annotations and assertions are left as they are."""
    tree = ast.parse(path.read_text())
    untouched = {id(part) for node in ast.walk(tree) for root in _untouched(node) for part in ast.walk(root)}
    for number, node in enumerate(ast.walk(tree)):
        changed = None if id(node) in untouched else changed_expression(node)
        if changed is not None and isinstance(node, ast.expr):
            yield Mutation(path, number, node.lineno, f"{ast.unparse(node)}  →  {ast.unparse(changed)}")


def _untouched(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Assert):
        yield node
    for name in ("annotation", "returns"):
        annotation = getattr(node, name, None)
        if isinstance(annotation, ast.AST):
            yield annotation


def changed_expression(node: ast.AST) -> ast.expr | None:
    """The expression with one operator or constant changed. None: it has none of its own."""
    match node:
        case ast.UnaryOp(op=ast.Invert() | ast.Not(), operand=operand):
            return operand
        case ast.IfExp(test, body, orelse):
            return ast.IfExp(test, orelse, body)
        case ast.Constant(value=bool() as value):
            return ast.Constant(not value)
        case ast.Constant(value=int() as number):
            return ast.Constant(1 - number if number in (0, 1) else number + 1)
        case ast.Compare(ops=[operator]) if type(operator) in REPLACEMENTS:
            changed = copy.copy(node)
            changed.ops = [REPLACEMENTS[type(operator)]()]  # type: ignore[list-item]  # a comparison for a comparison
            return changed
        case ast.BoolOp(op=operator) | ast.BinOp(op=operator) if type(operator) in REPLACEMENTS:
            changed_operation = copy.copy(node)
            changed_operation.op = REPLACEMENTS[type(operator)]()  # type: ignore[assignment]  # of the same arity
            return changed_operation
    return None


# ── tests ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def kill(mutation: Mutation | None) -> str | None:
    """The test that fails with the mutation, or without any; None if all pass."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(PACKAGE, source / "smile", ignore=shutil.ignore_patterns("__pycache__"))
        if mutation is not None:
            mutation.apply(source / "smile")
        environment = {**os.environ, "PYTHONPATH": str(source), "SMILE_RUNS": "0.2", "PYTHONDONTWRITEBYTECODE": "1"}
        for suite in SUITES:
            try:
                done = subprocess.run(
                    [sys.executable, *PYTEST, *suite],
                    cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TEST_SECONDS_MAX, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return "the tests do not end"
            if done.returncode:
                failures = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
                return (failures or done.stdout.splitlines()[-1:] or ["?"])[0].removeprefix("FAILED ")
    return None


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--count", type=int, default=20, help="how many mutants to try")
    asked.add_argument("--seed", type=int, default=int(time.time()), help="repeats the mutants of an earlier run")
    asked.add_argument(
        "file", nargs="*", help="a part of the names of the files to change, or of their lines: kleene.py:50"
    )
    options = asked.parse_args()
    every = [m for folder in FOLDERS for path in sorted((PACKAGE / folder).rglob("*.py")) for m in mutations(path)]
    chosen = [m for m in every if not options.file or any(word in str(m) for word in options.file)]
    sample = random.Random(options.seed).sample(chosen, min(options.count, len(chosen)))
    failing = kill(None)
    if failing is not None:
        print(f"without any change, this test fails: {failing}")
        return 1
    print(f"{len(sample)} of {len(chosen)} mutants, seed {options.seed}", flush=True)
    survivors = []
    for mutation in sample:
        killer = kill(mutation)
        survivors += [] if killer else [mutation]
        print(f"{'killed' if killer else 'SURVIVED'}  {mutation}\n          {killer or ''}".rstrip(), flush=True)
    share = len(survivors) / max(len(sample), 1)
    print(f"\n{len(survivors)} of {len(sample)} mutants survived: {share:.0%}, seed {options.seed}")
    for mutation in survivors:
        print(f"  {mutation}")
    return 1 if share > SURVIVORS_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
