"""Where a node has its time from: an offset that is small today is no proof for tomorrow (F033)."""

from __future__ import annotations

from ipaddress import ip_address

from rackpin.checks.base import Context
from rackpin.checks.host import Answer, HostCheck, properties


def _source(ctx: Context, answer: Answer) -> str | None:
    told = answer.told
    if answer.place.container:
        return None  # its clock is the host's
    said = properties(answer.parts["synchronized"]).get("NTPSynchronized")
    source = _chosen(answer)
    if said == "no":
        told.faults.append("the clock is not synchronized")
    elif said != "yes":
        told.untold.append("whether the clock is synchronized (timedatectl)")
    if not source:
        told.worries.append("neither chrony nor systemd-timesyncd names a source of time")
    wished = ctx.fleet.config.time_servers
    named = all(map(_is_address, source.split())) and not all(map(_is_address, wished))
    if wished and source and not named and not set(source.split()) & set(wished):
        told.worries.append(f"time comes from {source}, the inventory says {', '.join(wished)}")
    return f"synchronized, by {source}"


def _is_address(text: str) -> bool:
    """Old tools give addresses only, which can't be compared with names."""
    try:
        return bool(ip_address(text))
    except ValueError:
        return False


def _chosen(answer: Answer) -> str:
    """The selected source: name and address where both are known."""
    for line in answer.lines("chrony"):
        fields = line.split(",")
        if len(fields) > 3 and fields[0] in "^=#" and fields[1] == "*":
            return fields[2]
    found = properties(answer.parts.get("timesyncd", ""))
    return " ".join(found[key] for key in ("ServerName", "ServerAddress") if found.get(key))


CHECK = HostCheck(
    id="clock.source",
    title="The clock follows a source",
    expected="synchronized, by a source that the inventory names where it names any",
    source="inventory: time_servers; failures F033",
    remedy="chronyc sources -v, or timedatectl timesync-status; open UDP 123 to the source, "
    "correct time_servers",
    parts=("synchronized", "chrony", "timesyncd"),
    look=_source,
)
