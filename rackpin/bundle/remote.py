"""Whether the bundle that nodes will fetch from is served, and is the lock's."""

from __future__ import annotations

import json

from rackpin import deadlines
from rackpin.bundle.model import MANIFEST, BundleError, parse_manifest
from rackpin.stack.content import Lock


def problems(url: str, lock: Lock) -> list[str]:
    """Why nodes can't be built from the bundle at ``url``; empty when they can."""
    import httpx  # late: only a site with a bundle asks

    place = f"{url.rstrip('/')}/{MANIFEST}"
    try:
        # no proxy: the nodes ask this address directly too
        with httpx.Client(timeout=deadlines.BUNDLE_S, trust_env=False) as client:
            answer = client.get(place)
        answer.raise_for_status()
        manifest = parse_manifest(answer.text, place)
    except httpx.HTTPError as error:
        return [f"{place}: no answer ({error or type(error).__name__}); run: rackpin bundle serve"]
    except (BundleError, json.JSONDecodeError) as error:
        return [str(error)]
    if manifest.lock_digest != lock.digest:
        return [
            f"{place}: it is of lock {manifest.stack} {manifest.lock_digest[:12]}, the fleet's is "
            f"{lock.stack} {lock.short}; run: rackpin bundle {lock.stack} -o its directory"
        ]
    return []
