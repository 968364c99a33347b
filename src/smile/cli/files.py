"""Files that a command changes. A file is replaced as a whole: an interruption leaves the old one."""

from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """A link stays, and what it refers to is replaced. Raises OSError if the file cannot be written."""
    target = path.resolve()
    new = target.with_name(f".{target.name}.new")
    try:
        new.write_text(text, encoding="utf-8", newline="\n")
        new.chmod(target.stat().st_mode & 0o777)
        new.replace(target)
    except OSError:
        new.unlink(missing_ok=True)
        raise
