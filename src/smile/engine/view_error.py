"""The error of views that cannot be computed while others can.

Only what a transform does with its data counts: a disk or a log that fails concerns all views.
"""

from collections.abc import Sequence

import pyarrow as pa

from smile.errors import Diagnostic, SmileError

_KNOWLEDGE_CODES = "E05"
"""The errors that transforms raise. Their other errors are about the files of their state."""


_MEMORY_HINT = "Give the broker more memory, publish smaller events, or change the view so that it stores less."


class ViewError(SmileError):
    """These views cannot be computed from the current batch. If it `is_temporary`, a later attempt may succeed."""

    def __init__(self, views: Sequence[str], diagnostics: Sequence[Diagnostic], is_temporary: bool) -> None:
        super().__init__(diagnostics)
        self.views, self.is_temporary = tuple(views), is_temporary

    @property
    def is_lack_of_memory(self) -> bool:
        """Whether a batch with fewer events may succeed."""
        return self.diagnostics[0].code == "E053"


def attribute_to_views(problem: Exception, views: Sequence[str], relation: str) -> Exception:
    """The ViewError for a problem that occurred while `relation` was computed, from which `views` are. The problem
    itself if it does not concern the relation."""
    if isinstance(problem, ViewError) or not views:
        return problem
    if isinstance(problem, SmileError):
        is_own = problem.diagnostics[0].code.startswith(_KNOWLEDGE_CODES)
        return ViewError(views, problem.diagnostics, is_temporary=False) if is_own else problem
    if isinstance(problem, MemoryError):
        diagnostic = Diagnostic("E053", f"there is not enough memory to compute {relation}", hint=_MEMORY_HINT)
        return ViewError(views, [diagnostic], is_temporary=True)
    if isinstance(problem, pa.ArrowCapacityError) or "offset overflow" in str(problem):
        # Arrow's text arrays hold 2 GiB.
        diagnostic = Diagnostic("E053", f"the text of a column of {relation} is too large", hint=_MEMORY_HINT)
        return ViewError(views, [diagnostic], is_temporary=False)
    if isinstance(problem, OSError):
        return problem
    hint = "This is an error in SMILE. Please report it, with the program."
    message = f"{relation} cannot be computed: {type(problem).__name__}: {problem}"
    return ViewError(views, [Diagnostic("E052", message, hint=hint)], is_temporary=False)
