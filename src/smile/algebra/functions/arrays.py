"""Functions of arrays. Elements are counted from 1."""

from collections.abc import Callable
from typing import Any, Final

from smile import limits
from smile.algebra.arrays import decode_array, encode_array
from smile.algebra.coercions import cast, common_type
from smile.algebra.functions.base import NOT_MONOTONE, ScalarFunction, Signature, common_type_of_all
from smile.algebra.types import BOOL, ELEMENT_TYPES, INT, NULL, STRING, DataType, Value, array_type


def _literal_signature(types: tuple[DataType, ...]) -> Signature | None:
    common = common_type_of_all(types)
    element = STRING if common == NULL else common
    if element is None or element.name not in ELEMENT_TYPES:
        return None
    return Signature((element,) * len(types), array_type(element))


def _element_signature(result: Callable[[DataType], DataType]) -> Callable[[tuple[DataType, ...]], Signature | None]:
    """An array and a value that it can have; `result` is the type of the result by that of the elements."""

    def resolve(types: tuple[DataType, ...]) -> Signature | None:
        array, value = types
        common = common_type(array, array_type(value)) if array.name == "array" and value != NULL else array
        if common is None or common.name != "array" or value.name == "array":
            return None
        return Signature((common, common.element), result(common.element))

    return resolve


def _subscript_signature(types: tuple[DataType, ...]) -> Signature | None:
    fits = types[0].name == "array" and types[1] in (INT, NULL)
    return Signature((types[0], INT), types[0].element) if fits else None


def _cardinality_signature(types: tuple[DataType, ...]) -> Signature | None:
    return Signature(types, INT) if types[0].name == "array" else None


def _join_signature(types: tuple[DataType, ...]) -> Signature | None:
    fits = types[0].name == "array" and all(t in (STRING, NULL) for t in types[1:])
    return Signature((types[0], *(STRING for _ in types[1:])), STRING) if fits else None


def _split_signature(types: tuple[DataType, ...]) -> Signature | None:
    return Signature((STRING, STRING), array_type(STRING)) if all(t in (STRING, NULL) for t in types) else None


def _elements(array: Value, signature: Signature) -> list[Value]:
    assert isinstance(array, bytes)
    return decode_array(array, signature.args[0].element)


def _array(values: tuple[Value, ...], signature: Signature) -> Value:
    return encode_array(values, signature.result.element)


def _subscript(values: tuple[Value, ...], signature: Signature) -> Value:
    elements, position = _elements(values[0], signature), values[1]
    assert isinstance(position, int)
    return elements[position - 1] if 1 <= position <= len(elements) else None


def _cardinality(values: tuple[Value, ...], signature: Signature) -> Value:
    return len(_elements(values[0], signature))


def _array_contains(values: tuple[Value, ...], signature: Signature) -> Value:
    """As `value = ANY(array)`: NULL if no element is equal, but a NULL might be."""
    if values[0] is None:
        return None
    elements, value = _elements(values[0], signature), values[1]
    if value is None:
        return None if elements else False
    return True if value in elements else None if None in elements else False


def _array_position(values: tuple[Value, ...], signature: Signature) -> Value:
    """NULL is found too."""
    if values[0] is None:
        return None
    elements, value = _elements(values[0], signature), values[1]
    return elements.index(value) + 1 if value in elements else None


def _array_to_string(values: tuple[Any, ...], signature: Signature) -> Value:
    """NULLs are left out, unless there is a text for them."""
    array, separator, *null_text = values
    if array is None or separator is None:
        return None
    element = signature.args[0].element
    texts = [cast(e, element, STRING) for e in _elements(array, signature)]
    if element == BOOL:
        texts = [t and str(t)[0] for t in texts]
    replaced = [null_text[0] if t is None and null_text else t for t in texts]
    return str(separator).join(str(t) for t in replaced if t is not None)


def _string_to_array(values: tuple[Any, ...], signature: Signature) -> Value:
    """Without a separator, the characters. NULL if there are too many parts."""
    text, separator = values
    if text is None:
        return None
    parts = list(text) if separator is None else [text] if not separator else text.split(separator)
    parts = parts if text else []
    return None if len(parts) > limits.array_elements_max else encode_array(parts, STRING)


def _function(
    name: str, arity: tuple[int, int | None], resolve: Any, apply: Any, strict: bool = True, partial: bool = False
) -> ScalarFunction:
    return ScalarFunction(name, arity, resolve, apply, (NOT_MONOTONE,), strict=strict, partial=partial)


FUNCTIONS: Final = (
    _function("array", (1, None), _literal_signature, _array, strict=False),
    _function("subscript", (2, 2), _subscript_signature, _subscript, partial=True),
    _function("cardinality", (1, 1), _cardinality_signature, _cardinality),
    _function("array_contains", (2, 2), _element_signature(lambda _: BOOL), _array_contains, strict=False),
    _function("array_position", (2, 2), _element_signature(lambda _: INT), _array_position, strict=False),
    _function("array_to_string", (2, 3), _join_signature, _array_to_string, strict=False),
    _function("string_to_array", (2, 2), _split_signature, _string_to_array, strict=False),
)
