"""What a test program shows according to the reference."""

from smile.knowledge.values.json import Json
from smile.reference.evaluate import evaluate
from smile.reference.history import History
from smile.reference.wire import snapshot_messages
from smile.testing.reader import CaseFile
from tests.programs.reader import analyse, recorded_lines


def shown_rows(case: CaseFile, cut: int | None) -> list[Json]:
    """The rows after so many event lines, or at the end. The program is evaluated as it runs: rewritten."""
    history = History.from_lines(case.written, recorded_lines(case)[:cut])
    known = history if cut is not None else history.with_finished_streams()
    program = case.rewritten
    analysis = analyse(program)
    relations = evaluate(program, analysis, known)
    return [
        row
        for view in program.subscriptions
        for row in snapshot_messages(view, analysis.relations[view], relations[view]).values()
    ]
