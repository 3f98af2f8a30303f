"""`muster config check`: YuniKorn's verdict on queues.yaml files, with file and line."""

import sys
from pathlib import Path

from shared.queueconfig import QueueConfigError, load_configuration


def check_files(files: list[Path]) -> int:
    """Check files one by one; return 0 when all hold, else 1."""
    return max([_check(file) for file in files], default=0)


def _check(file: Path) -> int:
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
        load_configuration(text)
    except QueueConfigError as error:
        print(f"{file}:{error.line}: {error.message}", file=sys.stderr)
        return 1
    except (OSError, UnicodeDecodeError) as error:
        print(f"{file}: {error}", file=sys.stderr)
        return 1
    print(f"ok {file}")
    return 0
