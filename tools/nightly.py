"""Runs every check there is, with new random cases, one part after another: `nightly.py [--seed N] [PART…]`.

A part that fails does not stop the others. At the end a table says how long each part took and whether it passed; the
exit code is 1 if one did not. `--seed` repeats the random cases of an earlier run.
"""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CODE = ["src", "tests", "tools", "bench"]
PYTEST = ["pytest", "-q", "-n", "3", "--dist", "loadgroup", "--no-loadscope-reorder"]
RANDOM_PROGRAMS = [
    "tests/test_random_programs.py",
    "tests/reference/test_random_programs.py",
    "tests/engine/test_random_programs.py",
    "tests/engine/test_repartition.py",
]


@dataclass(frozen=True)
class Part:
    """Modules that run one after another, each with its arguments."""

    name: str
    commands: list[list[str]]
    environment: dict[str, str] = field(default_factory=dict)

    def run(self) -> bool:
        """Whether all of it passed."""
        codes = []
        for command in self.commands:
            variables = [f"{name}={value}" for name, value in self.environment.items()]
            print(f"\n== {self.name}:", *variables, "python -m", *command, flush=True)
            done = subprocess.run(
                [sys.executable, "-m", *command], cwd=ROOT, env={**os.environ, **self.environment}, check=False
            )
            codes.append(done.returncode)
        return not any(codes)


def parts(seed: int) -> list[Part]:
    """All of them. A failing test's name has the seed that repeats it alone."""

    def seeds(count: int) -> dict[str, str]:
        return {"SMILE_SEEDS": f"{seed}-{seed + count - 1}"}

    return [
        Part("lint", [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy", *CODE]]),
        Part("tests", [[*PYTEST, f"--hypothesis-seed={seed}"]], {"SMILE_RUNS": "5"}),
        # It measures how smooth a page is, so nothing runs beside it.
        Part("console under load", [["pytest", "-q", "-rP", "tests/console/load.py"]]),
        Part("random programs", [[*PYTEST, *RANDOM_PROGRAMS]], seeds(1000)),
        Part("random programs on Spark", [[*PYTEST, "tests/engine/spark/test_random_programs.py"]], seeds(100)),
        Part("torture", [[*PYTEST, "tests/torture/test_kills.py"]], {**seeds(10), "TORTURED": "local"}),
        Part("torture on Spark", [[*PYTEST, "tests/torture/test_kills.py"]], {**seeds(3), "TORTURED": "spark"}),
        *(
            Part(
                f"PostgreSQL {programs.parts[-2]}",
                [[*PYTEST, "tests/postgres"]],
                {"SMILE_TEST_POSTGRES": str(programs)},
            )
            for programs in sorted(Path("/usr/lib/postgresql").glob("*/bin"))
        ),
        Part("mutants", [["tools.mutants", "--count", "40", "--seed", str(seed)]]),
        Part("simulation", [["tests.simulation", f"{seed}-{seed + 999}"]]),
        Part("planted bugs", [[*PYTEST, "tests/engine/canaries.py", "tests/torture/canaries.py"]]),
    ]


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seed", type=int, default=int(time.time()))
    asked.add_argument("part", nargs="*", help="a word of the names of the parts to run; without any, all are")
    options = asked.parse_args()
    chosen = [
        part for part in parts(options.seed) if not options.part or any(word in part.name for word in options.part)
    ]
    if not chosen:
        names = ", ".join(part.name for part in parts(options.seed))
        asked.error(f"there is no such part; there are: {names}")
    rows: list[tuple[Part, float, bool]] = []
    for part in chosen:
        started = time.monotonic()
        passed = part.run()
        rows.append((part, time.monotonic() - started, passed))
    print(f"\nseed {options.seed}")
    for part, seconds, passed in rows:
        print(f"{part.name:26} {seconds:8.0f} s  {'passed' if passed else 'FAILED'}")
    return 0 if all(passed for *_, passed in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
