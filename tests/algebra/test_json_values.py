"""Canonical JSON is what PostgreSQL's jsonb prints, but for zeros at the end of fractions; its limits hold."""

import json
from random import Random
from typing import Any

import pytest

from smile import limits
from smile.algebra.json_values import canonical_json, key_text, member, plain_text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (' {"bb" : 1, "a":2,"é":3, "b":4} ', '{"a": 2, "b": 4, "bb": 1, "é": 3}'),
        ('{"a":1,"b":2,"a":3}', '{"a": 3, "b": 2}'),
        ("[1.0, 1.50, -0.0, 1e2, 1E-3, 0e9]", "[1, 1.5, 0, 100, 0.001, 0]"),
        ("12345678901234567890.5", "12345678901234567890.5"),
        (r'"\u00e9\ud83d\ude00\/\b\u001f\""', '"é😀/\\b\\u001f\\""'),
        ("[]", "[]"),
        ('{"":{}}', '{"": {}}'),
        ("null", "null"),
    ],
)
def test_canonical_text(text: str, canonical: str) -> None:
    assert canonical_json(text) == canonical
    assert canonical_json(canonical) == canonical


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("{a: 1}", "not JSON"),
        ("[1,]", "not JSON"),
        ("1 2", "not JSON"),
        ("NaN", "NaN is not a JSON number"),
        ("[-Infinity]", "-Infinity is not a JSON number"),
        (r'"\u0000"', "the character U+0000"),
        (r'{"\u0000": 1}', "the character U+0000"),
        (r'"\ud800"', "half of a surrogate pair"),
        (r'{"\udc00": 1}', "half of a surrogate pair"),
        ("1e1001", "more than 1,000 digits"),
        ("1e-1001", "more than 1,000 digits"),
        ("1e99999999999999999999", "more than 1,000 digits"),
        ("1" * 1001, "more than 1,000 digits"),
        ("[" * 101 + "]" * 101, "more than 100 levels"),
        ("[" * 100_000, "more than 100 levels"),
        ('"' + "a" * limits.json_chars_max + '"', "more than 1,048,576 characters"),
        ("[" + "1e999," * 2000 + "1]", "more than 1,048,576 characters"),
    ],
)
def test_what_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace("+", r"\+")):
        canonical_json(text)


def test_the_limits_are_reached() -> None:
    assert canonical_json("[" * 100 + "]" * 100)
    assert len(canonical_json("1e999")) == 1000


def random_document(random: Random, depth: int = 3) -> Any:
    chosen = random.randrange(7 if depth else 5)
    if chosen == 5:
        return [random_document(random, depth - 1) for _ in range(random.randrange(3))]
    if chosen == 6:
        return {random.choice("abé ") * random.randrange(3): random_document(random, depth - 1) for _ in range(3)}
    return [None, random.random() < 0.5, random.randrange(-9, 10**20), random.choice(["", "a", '\n\u2028"', "é"]), 0.5][
        chosen
    ]


def test_parts_are_canonical_and_order_means_nothing() -> None:
    random = Random(1)
    for _ in range(200):
        document = {"x": random_document(random), "y": random_document(random)}
        text = canonical_json(json.dumps(document))
        assert json.loads(text) == document
        assert canonical_json(json.dumps(dict(reversed(document.items())))) == text
        for name, value in document.items():
            part = member(text, name)
            assert part == canonical_json(json.dumps(value))
            if isinstance(value, str):
                assert plain_text(part) == value


def test_different_values_have_different_keys() -> None:
    texts = ["null", '{"json": null}', '{"json": {"json": null}}', '{"json": 1}', "1", '{"json": null, "a": 1}']
    assert len({key_text(canonical_json(text)) for text in texts} | {"null"}) == len(texts) + 1
    assert key_text("1") == "1"
