"""The machine that is looked at: its files and its commands. Tests give another root and runner."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from rackpin.audit.node.sheet import Unseen

COMMAND_S = 15.0
_ENVIRONMENT = {"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

Ran = tuple[int, str, str]  # exit status, stdout, stderr


def run_command(argv: Sequence[str], deadline_s: float) -> Ran:
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=deadline_s,
            env=_ENVIRONMENT,
            check=False,
        )
    except FileNotFoundError:
        return 127, "", f"{argv[0]}: not installed"
    except OSError as error:
        return 126, "", f"{argv[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return 124, "", f"{argv[0]}: no answer within {deadline_s:g} s"
    return (
        done.returncode,
        done.stdout.decode("utf-8", "replace"),
        done.stderr.decode("utf-8", "replace"),
    )


class Place:
    """Files under ``root`` ("" is this machine) and commands through ``run``."""

    def __init__(
        self, root: str = "", run: Callable[[Sequence[str], float], Ran] = run_command
    ) -> None:
        self.root = root
        self._run = run

    def at(self, path: str) -> Path:
        return Path(self.root + path)

    def read(self, path: str) -> str | None:
        """Text of a file; None when there is none. :class:`Unseen` when it can't be read."""
        try:
            return self.at(path).read_bytes().decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Unseen(f"{path}: {error.strerror}") from error

    def names(self, path: str) -> list[str]:
        """Names in a directory, sorted; none when there is no such directory."""
        try:
            return sorted(entry.name for entry in self.at(path).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise Unseen(f"{path}: {error.strerror}") from error

    def ask(self, *argv: str, good: Sequence[int] = (0,), deadline_s: float = COMMAND_S) -> str:
        """What a command prints. :class:`Unseen` when it fails, hangs or isn't there."""
        code, out, err = self._run(argv, deadline_s)
        if code not in good:
            said = err.strip() or out.strip() or "without a word"
            raise Unseen(f"{' '.join(argv[:2])} ended with status {code}: {said}")
        return out
