"""The entry point of the command `smile`. Ctrl-C while the modules are imported ends it without a traceback, and a
missing library is reported in one sentence, with what installs it."""

import sys

from smile.cli.loading import loading
from smile.errors import render
from smile.extras import missing_library_error
from smile.source import Source


def main() -> None:
    try:
        with loading():
            from smile.cli.main import main as run  # noqa: PLC0415
        run()
    except ImportError as problem:
        missing = missing_library_error(problem) if isinstance(problem, ModuleNotFoundError) else None
        if missing is not None:
            print(render(missing.diagnostics, Source("smile", "")), file=sys.stderr)
        else:
            print(f"smile: a library cannot be imported: {problem}", file=sys.stderr)
            print("  hint: Install SMILE again: pip install, or make setup.", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
