"""Fetch uv's wheel, prove its sha256, put its binary in place. Runs on a bare node.

argv: URL SHA256 TARGET DEADLINE_S. Standard library only, as curl may be missing.
"""

import hashlib
import io
import os
import sys
import time
import urllib.request
import zipfile
from pathlib import Path


def main(url: str, sha256: str, target: str, deadline: float) -> str:
    """Returns "" or what went wrong."""
    end = time.monotonic() + deadline
    data = io.BytesIO()
    try:
        # No proxy: the wheelhouse is in the site's own network.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=30) as answer:
            while block := answer.read(1 << 20):
                data.write(block)
                if time.monotonic() > end:
                    return f"{url}: not done after {deadline:.0f} s"
    except OSError as error:
        return f"{url}: {error}; is the wheelhouse served there?"
    found = hashlib.sha256(data.getvalue()).hexdigest()
    if found != sha256:
        return f"{url}: expected sha256 {sha256}, found {found}"
    with zipfile.ZipFile(data) as wheel:
        names = [n for n in wheel.namelist() if n.endswith(".data/scripts/uv")]
        binary = wheel.read(names[0])
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    part = Path(f"{target}.part")
    with part.open("wb") as stream:
        stream.write(binary)
        os.fchmod(stream.fileno(), 0o755)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(target)
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])) or 0)
