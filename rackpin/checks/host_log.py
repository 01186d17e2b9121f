"""What the kernel said since boot of drives, memory, PCIe, links and modules (F010, F051, F061).

Facts that prove trouble fail, what may have been somebody's hand warns. GPUs: see gpu.xid.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from rackpin.checks.base import NO_ANSWER, NOTHING, Command, Context, Outputs, Question
from rackpin.checks.gpuinfo import Told, conclude
from rackpin.checks.host import PLACE, place, read
from rackpin.checks.host_log_rules import TOPICS, Rule, Topic
from rackpin.findings import Finding, Level

# A storm of one message must not crowd out the others: numbers apart, five of a kind are enough,
# and the last one, whose time says whether it goes on.
LOG = Command(
    "host.log",
    PLACE
    + r"""few() {
  awk '/I\/O error|EXT4-fs|XFS \(|BTRFS|nvme|ata[0-9.]+:|Remounting|critical medium/ ||
    /\[Hardware Error\]|mce:|EDAC|Out of memory|oom-kill|Killed process|Memory failure/ ||
    /AER:|PCIe Bus Error|IO_PAGE_FAULT|DMAR:|limited by|pciehp|BadTLP/ ||
    /[Ll]ink is|arrier|[Ll]ink (down|DOWN)|disagrees about|Unknown symbol|version magic/ ||
    /blocked for more than|soft lockup|hard LOCKUP|rcu.*stall|Kernel panic|BUG|rejected/ {
    k = $0; sub(/^\[[^]]*\] */, "", k); gsub(/[0-9][0-9][0-9][0-9]+/, "N", k)
    k = substr(k, 1, 70); if (!(k in n) && ++kinds > 400) { print "MORE"; exit }
    if (n[k]++ < 5) print substr($0, 1, 400); else last[k] = substr($0, 1, 400) }
  END { for (k in last) print last[k] }'
}
echo '## time'; date +%s; cut -d ' ' -f 1 /proc/uptime
t=$(dmesg 2>/dev/null); r=$?
echo '## dmesg'; printf '%s\n' "$t" | few
echo '## dmesg status'; echo "$r"; printf '%s\n' "$t" | head -n 1
t=$(journalctl -k -b -q --no-pager -o short-monotonic 2>/dev/null)
echo '## journal'; printf '%s\n' "$t" | few
echo '## journal status'; printf '%s\n' "$t" | head -n 1
echo '## end'
""",
    deadline_s=20.0,
)
EARLY_S = 120.0  # a log that begins later than this after boot has lost its beginning
FLAPS = 5  # times that one link went: Azure's node checks call that flapping


PARTS = ("time", "dmesg", "dmesg status", "journal", "journal status")
SOURCE = "the kernel's own messages"
ELSEWHERE = "read the log of the machine that the container runs on (dmesg); nothing to do here"
LOST = "the log no longer reaches back to the boot"
LINKS = Topic(
    "log.links",
    "No link went down again and again",
    (),
    "ethtool -m or mlxlink for the optics; clean or change cable and transceiver",
)
_LINK = re.compile(
    r"(?P<who>[\w.-]{2,40})(?:: (?:NIC |Port:? \d+ )?| NIC (?:Copper )?)"
    r"(?:[Ll]ink is [Dd]own|Lost carrier|Link (?:[Dd]own|DOWN))"
)
_STAMP = re.compile(r"^\[\s*(\d{1,9}\.\d{1,9})\]\s*")


class Log:
    id = "log"
    title = "The kernel's log since boot"
    level: Level = "quick"
    needs = NOTHING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [LOG]

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        output = outputs.get(LOG.name, NO_ANSWER)
        found = read(LOG, output, PARTS)
        questions = {
            topic.id: Question(ctx, topic.id, LOG, output, f"{topic.title} since boot", SOURCE)
            for topic in (*TOPICS, LINKS)
        }
        if isinstance(found, str):
            return [question.not_run(found) for question in questions.values()]
        sources, why = logs(found)
        since = last_verify(ctx, found)
        judged = []
        for topic in (*TOPICS, LINKS):
            told, shown = flaps(sources) if topic is LINKS else matched(topic, sources, since)
            question = questions[topic.id]
            inside = place(found).container
            if inside:
                # The log is the machine's: what it says may be of others' doing.
                told = Told(worries=[f"{x} (the machine)" for x in told.faults + told.worries])
                if why and not told.worries:
                    where = "a container is not shown its host's whole kernel log"
                    judged.append(question.not_run(where, remedy=ELSEWHERE, required=False))
                    continue
            if why == LOST or (why and inside):
                told.worries.append(f"{why}: errors may be missing")
            elif why:
                told.untold.append(why)
            good = "nothing since boot"
            judged.append(conclude(question, good, told, shown=shown, remedy=topic.remedy))
        return judged


def last_verify(ctx: Context, found: dict[str, str]) -> float | None:
    """Seconds after boot at which the last verify was; None when it isn't known."""
    return after_boot(ctx.extra.get("last_verify", ""), found.get("time", ""))


def after_boot(when: str, clock: str) -> float | None:
    """An ISO time as seconds after boot; ``clock``: the node's epoch seconds, then its uptime."""
    words = clock.split()
    try:
        moment = datetime.fromisoformat(when)
        now, uptime = float(words[0]), float(words[1])
    except (ValueError, IndexError):
        return None
    return None if moment.tzinfo is None else moment.timestamp() - now + uptime


def stamp(line: str) -> float | None:
    """Seconds after boot of a line."""
    match = _STAMP.match(line)
    return float(match[1]) if match else None


def logs(found: dict[str, str]) -> tuple[list[list[str]], str]:
    """Lines of dmesg and of the journal, and why they may not be all ("" when they are)."""
    status = found["dmesg status"].splitlines()
    firsts = found["journal status"].splitlines()[:1]
    if status[:1] == ["0"]:
        firsts += status[1:2]
    sources = [found["dmesg"].splitlines(), found["journal"].splitlines()]
    stamps = [at for first in firsts if (at := stamp(first)) is not None]
    if not stamps:
        return sources, "neither dmesg nor the journal gives the kernel's log"
    if any("MORE" in lines for lines in sources):
        return sources, "the log has more kinds of messages than are kept"
    return sources, LOST if min(stamps) > EARLY_S else ""


def matched(topic: Topic, sources: list[list[str]], since: float | None) -> tuple[Told, str]:
    """Each message by the first rule that knows it; each device of a rule is named once."""
    told, shown = Told(), list[str]()
    seen: dict[tuple[Rule, str], list[str]] = {}
    for line in (line for lines in sources for line in lines):
        for rule in topic.rules:
            if match := rule.pattern.search(line):
                groups = [value for value in match.groupdict().values() if value]
                seen.setdefault((rule, groups[0] if groups else ""), []).append(line)
                break
    for (rule, who), said in seen.items():
        text = f"{who}: {rule.says}" if who else rule.says
        if since is not None:
            stamps = [at for line in said if (at := stamp(line)) is not None]
            # A line without a time may be new.
            new = len(stamps) < len(said) or any(at > since for at in stamps)
            text += ", since the last verify" if new else ", before the last verify"
        (told.faults if rule.fault else told.worries).append(text)
        shown += said[:3]
    return told, "\n".join(shown)


def flaps(sources: list[list[str]]) -> tuple[Told, str]:
    """A link that goes once was somebody's hand; one that goes again and again is a bad cable.

    dmesg and the journal repeat each other, so the one that says more counts.
    """
    gone: Counter[str] = Counter()
    shown: list[str] = []
    for lines in sources:
        here = [(match["who"], line) for line in lines if (match := _LINK.search(line))]
        gone |= Counter(who for who, _ in here)
        shown += [line for _, line in here]
    told = Told(
        faults=[f"{who} went down {n} times or more" for who, n in gone.items() if n >= FLAPS],
        worries=[f"{who} went down {n} times" for who, n in gone.items() if 1 < n < FLAPS],
    )
    return told, "\n".join(shown[:20])


CHECK = Log()
