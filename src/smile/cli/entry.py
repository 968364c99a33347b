"""The entry point of the command `smile`. Ctrl-C while the modules are imported ends it without a traceback, and a
missing library is reported in one sentence."""

import signal
import sys


def main() -> None:
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from smile.cli.main import main as run  # noqa: PLC0415

        signal.signal(signal.SIGINT, handler)
        run()
    except ImportError as problem:
        print(f"smile: a library is missing: {problem}", file=sys.stderr)
        print("  hint: Install SMILE again with all its dependencies: pip install, or make setup.", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
