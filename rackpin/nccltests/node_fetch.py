"""Fetch one file and prove its sha256. Runs on a bare node.

argv: URL SHA256 TARGET DEADLINE_S. Standard library only, as curl may be missing.
"""

import hashlib
import os
import sys
import time
import urllib.request
from pathlib import Path


def main(url: str, sha256: str, target: str, deadline: float) -> str:
    """Returns "" or what went wrong."""
    end = time.monotonic() + deadline
    data = bytearray()
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            while block := answer.read(1 << 20):
                data += block
                if time.monotonic() > end:
                    return f"{url}: not done after {deadline:.0f} s"
    except OSError as error:
        return f"{url}: {error}; a site without a way there serves it by a bundle"
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        return f"{url}: expected sha256 {sha256}, found {found}"
    part = Path(f"{target}.part")
    with part.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(target)
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])) or 0)
