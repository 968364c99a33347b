"""Random programs around one operator, over streams and over rows that arrive out of order, appear late, evolve or
leave."""

from collections.abc import Callable, Sequence
from random import Random

from smile.algebra import mmpl
from smile.algebra.types import BOOL
from smile.errors import SmileError
from tests.kernels.harness import cuts, differences
from tests.random_programs import Programs
from tests.reference.histories import Histories

Draw = Callable[[Programs, mmpl.Rel], mmpl.Rel]

BELOW: tuple[Draw, ...] = (
    Programs.restrict, Programs.extend, Programs.window, Programs.silence, Programs.over, Programs.best,
    Programs.summarize, Programs.join, Programs.project,
)  # fmt: skip
ABOVE: tuple[Draw, ...] = (Programs.restrict, Programs.extend, Programs.window, Programs.best)

TRIES_MAX = 40


class OperatorPrograms(Programs):
    """Draws views that contain the operator, with other operators below and above it."""

    def __init__(self, random: Random, operator: Draw, below: Sequence[Draw], above: Sequence[Draw]) -> None:
        super().__init__(random)
        self.operator, self.below, self.above = operator, below, above

    def _body(self) -> mmpl.Rel:
        for _ in range(TRIES_MAX):
            rel = self._extend_with(self._head(), self.below, self.random.randint(0, 3))
            with_operator = self._extend_with(rel, [self.operator], 2)
            if with_operator is not rel:
                return self._extend_with(with_operator, self.above, self.random.randint(0, 1))
        return mmpl.Restrict(self._head(), mmpl.Constant(True, BOOL))

    def _grown(self, rel: mmpl.Rel, operators: int) -> mmpl.Rel:
        return self._extend_with(rel, self.below, operators)

    def _extend_with(self, rel: mmpl.Rel, operators: Sequence[Draw], count: int) -> mmpl.Rel:
        for _ in range(count):
            try:
                grown = self.random.choice(operators)(self, rel)
                self._heading(grown)
            except (SmileError, IndexError):
                continue
            rel = grown
        return rel


def program_around(random: Random, operator: Draw, below: Sequence[Draw] = BELOW) -> mmpl.Program:
    return OperatorPrograms(random, operator, below, ABOVE).draw(random.randint(1, 2))


def random_differences(seed: int, operator: Draw, below: Sequence[Draw] = BELOW) -> tuple[mmpl.Program, list[str]]:
    """The random program of this seed, and the first differences between the engine's and the reference's output. A
    program that is refused while it runs, since rows would share a key, has none."""
    random = Random(seed)
    program = program_around(random, operator, below)
    histories = Histories(program, random)
    lines = [histories.line() for _ in range(random.randint(3, 14))]
    try:
        return program, differences(program, lines, cuts(random, len(lines)))
    except NotImplementedError:
        return program, []
