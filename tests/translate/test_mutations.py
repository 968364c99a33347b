"""Randomly changed programs either compile or are refused with valid diagnostics. Nothing else is raised."""

import random
import re

from hypothesis import given, settings, strategies as st

from smile import lang
from smile.algebra.parser import parse_program
from smile.algebra.printer import print_program
from smile.analysis.check import check_program
from smile.errors import CATALOGUE, Diagnostic, SmileError
from smile.program import compile_program
from smile.source import Source
from tests.repeatable import scaled
from tests.translate.fixtures import all_cases

TEXTS = [case.source.text for case in all_cases()]
TOKEN = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[\w#$]+|\s+|.""", re.DOTALL)
NAME = re.compile(r"[^\W\d][\w#$]*")
WORDS = sorted({word for text in TEXTS for word in TOKEN.findall(text) if not word.isspace()})


def mutated(text: str, chance: random.Random) -> str:
    tokens = TOKEN.findall(text)
    for _ in range(chance.randint(1, 3)):
        position = chance.randrange(len(tokens))
        match chance.randrange(6):
            case 0:
                tokens[position] = ""
            case 1:
                tokens[position] = f"{tokens[position]} {tokens[position]}"
            case 2:
                other = chance.randrange(len(tokens))
                tokens[position], tokens[other] = tokens[other], tokens[position]
            case 3:
                tokens[position] = chance.choice(WORDS)
            case _:
                names = [i for i, token in enumerate(tokens) if NAME.fullmatch(token)]
                if names:
                    tokens[chance.choice(names)] = tokens[chance.choice(names)]
    return "".join(tokens)


@settings(max_examples=scaled(500))
@given(st.sampled_from(TEXTS), st.randoms(use_true_random=False))
def test_changed_programs_compile_or_have_valid_diagnostics(text: str, chance: random.Random) -> None:
    source = Source("broken.smile", mutated(text, chance))
    problems: list[Diagnostic] = []
    try:
        program = compile_program(source).original
    except SmileError as failure:
        problems = failure.diagnostics
    for problem in problems:
        assert problem.code in CATALOGUE
        assert problem.span is None or 0 <= problem.span.start <= problem.span.end <= len(source.text)
    if not problems:
        views = [s for s in lang.parse(source)[0] if isinstance(s, lang.CreateView)]
        assert len(program.views) == len(views)
        assert check_program(program) == program
        assert parse_program(Source("case.mmpl", print_program(program))) == program
