"""Several repositories at once: everything wrong with any of them is said at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rackpin.debs.cache import forget
from rackpin.debs.model import DebError, Refused, Repository, Unreachable
from rackpin.debs.repository import Clock, Index, fetch_index, now
from rackpin.debs.transport import Transport

PARALLEL = 4


def fetch_indices(
    repositories: Sequence[Repository],
    cache: Path | None = None,
    transport: Transport | None = None,
    clock: Clock = now,
) -> list[Index]:
    """Indices in the order given. Raises :class:`Unreachable` when that is all that is wrong."""
    names = [repository.name for repository in repositories]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DebError(f"repositories: {', '.join(twice)} is there twice; rename one")
    if transport is None:
        with Transport() as own:
            return fetch_indices(repositories, cache, own, clock)

    def one(repository: Repository) -> Index | DebError:
        try:
            return fetch_index(repository, transport, cache, clock)
        except DebError as error:
            return error

    with ThreadPoolExecutor(PARALLEL) as pool:
        results = list(pool.map(one, repositories))
    errors = [result for result in results if isinstance(result, DebError)]
    if errors:
        refused = any(isinstance(error, Refused) for error in errors)
        down = all(isinstance(error, Unreachable) for error in errors)
        kind = Unreachable if down else Refused if refused else DebError
        raise errors[0] if len(errors) == 1 else kind("\n".join(str(e) for e in errors))
    if cache:
        forget(cache)
    return [result for result in results if isinstance(result, Index)]
