"""An error says what is wrong and what works; a message that quotes it has only what is wrong."""

from smile.errors import Diagnostic, SmileError, error, message_of


def test_the_text_of_an_error_has_its_hint() -> None:
    problem = error("E021", "there is no view Totls", hint="Did you mean Totals?")
    assert str(problem) == "there is no view Totls\n  hint: Did you mean Totals?"
    assert (problem.code, problem.message, problem.hint) == ("E021", "there is no view Totls", "Did you mean Totals?")
    assert repr(problem) == "SmileError(E021: there is no view Totls)"


def test_an_error_without_a_hint_and_several_errors() -> None:
    assert str(error("E098", "the broker is stopping")) == "the broker is stopping"
    several = SmileError([Diagnostic("E021", "no view V", hint="Write W."), Diagnostic("E022", "no column c")])
    assert str(several) == "no view V\n  hint: Write W.\nno column c"
    assert several.message == "no view V; no column c"


def test_the_message_of_any_exception() -> None:
    assert message_of(error("E021", "no view", hint="Write W.")) == "no view"
    assert message_of(OSError("no disk")) == "no disk"
