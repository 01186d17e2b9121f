"""What a node runs for the apt stage: POSIX sh texts, built of a few shared functions.

Nobody's lock is broken and nobody's process killed; whoever holds apt's or dpkg's lock is
waited for (F023). ``apt-get update`` counts as done only when every server has answered (F022).
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterable, Mapping, Sequence

from rackpin import deadlines, layout

# sudo and ssh drop the environment, so it is set inside (F025).
ENV = "env LC_ALL=C DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 NEEDRESTART_MODE=l"
UPDATE_OPTIONS = (
    "-q -o APT::Update::Error-Mode=any -o Acquire::Retries=1 "
    f"-o Acquire::http::Timeout={deadlines.APT_HTTP_S} "
    f"-o Acquire::https::Timeout={deadlines.APT_HTTP_S}"
)

# patient COMMAND…: again for as long as another program holds a lock; its words are in $said.
_PATIENT = f"""\
said=$(mktemp /run/rackpin-apt.XXXXXXXX) || exit 70
trap 'rm -rf "$said" "${{trial:-}}"' EXIT
trap 'exit 143' HUP INT TERM
patient() {{
  end=$(( $(date +%s) + {deadlines.APT_LOCK_S} ))
  while :; do
    {ENV} "$@" >"$said" 2>&1 </dev/null; rc=$?
    [ $rc -ne 0 ] && grep -qE "$locks" "$said" || return $rc
    if [ "$(date +%s)" -ge "$end" ]; then
      echo "E: waited {deadlines.APT_LOCK_S} s for another program to finish" >>"$said"; return $rc
    fi
    sleep 3
  done
}}
locks='Could not get lock|Unable to (lock|acquire)|(lock|database) (was|is) locked by another'
"""

# The answer that a mirror in the middle of its sync gives is tried again; a wrong key is not.
_UPDATE = """\
refresh() {
  for pause in @pauses@ end; do
    patient apt-get @options@ "$@" update; rc=$?
    if [ $rc -eq 0 ]; then
      ! grep -qE "$unfetched" "$said" || rc=100
    fi
    [ $rc -ne 0 ] || { unanswered || return 0; rc=100; }
    ! grep -qE "$permanent" "$said" || break
    [ "$pause" = end ] || sleep "$pause"
  done
  return $rc
}
unanswered() {
  for uri in $repositories; do
    grep -E '^(Hit|Get):[0-9]+ ' "$said" | grep -qF " $uri" || {
      echo "E: $uri did not answer, although apt-get update said 0" >>"$said"; return 0; }
  done
  return 1
}
unfetched='^(Err:|E: )|^W: .*(Failed to fetch|signature verif|GPG error|Some index)'
permanent='NO_PUBKEY|is not signed|EXPKEYSIG|REVKEYSIG|Policy rejected|Conflicting values'
permanent="$permanent|could not be read|Malformed|is not valid yet|is expired|another program"
"""


def update_functions(uris: Iterable[str] = ()) -> str:
    """``refresh [OPTION…]``: fresh lists or a reason in ``$said``; each of ``uris`` must answer."""
    pauses = " ".join(str(pause) for pause in deadlines.APT_RETRY_S)
    text = _UPDATE.replace("@pauses@", pauses).replace("@options@", UPDATE_OPTIONS)
    # a directory always answers, and apt writes its address in another way
    wanted = " ".join(uri.rstrip("/") for uri in uris if not uri.startswith("file:"))
    return f"{_PATIENT}repositories={shlex.quote(wanted)}\n{text}"


def update_script() -> str:
    """Fresh lists, or a failure with apt's words."""
    return f'{update_functions()}refresh || {{ cat "$said" >&2; exit 100; }}\n'


def repair_script() -> str:
    """Finish what an interrupted dpkg has left (F027, F028); removes no package.

    dpkg itself never waits for its lock, and the apt of a killed run may still be at work.
    """
    force = "--force-confdef --force-confold"
    return f"""{_PATIENT}
patient dpkg {force} --configure -a; rc=$?
sed 's/^/dpkg: /' "$said"
if [ $rc -ne 0 ] || ! {ENV} apt-get -q check >/dev/null 2>&1; then
  patient apt-get -q -y --no-remove -o DPkg::Lock::Timeout={deadlines.APT_LOCK_S} \\
    -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold -f install || {{
    cat "$said" >&2; exit 100; }}
fi
if [ -n "$(ls /var/lib/dpkg/updates)" ] || [ -n "$(dpkg --audit)" ]; then
  echo 'dpkg is still not whole:' >&2; dpkg --audit >&2; exit 1
fi
"""


def holds_script(hold: Sequence[str], release: Sequence[str], held: Sequence[str]) -> str:
    """Hold and release packages, then write down which ones rackpin holds."""
    lines = [_PATIENT, "set -e", f"mkdir -p -m 755 {layout.APT}"]
    for verb, names in (("unhold", release), ("hold", hold)):
        if names:
            words = " ".join(shlex.quote(name) for name in names)
            lines.append(f'patient apt-mark {verb} {words} || {{ cat "$said" >&2; exit 1; }}')
    record = shlex.quote("".join(f"{name}\n" for name in held))
    lines.append(f"printf %s {record} >{layout.APT_HELD}")
    return "\n".join(lines) + "\n"


def hold_more_script(names: Sequence[str]) -> str:
    """Hold packages that were just installed, and write them down beside those held before."""
    words = " ".join(shlex.quote(name) for name in names)
    return f"""{_PATIENT}set -e
mkdir -p -m 755 {layout.APT}
patient apt-mark hold {words} || {{ cat "$said" >&2; exit 1; }}
{{ [ ! -e {layout.APT_HELD} ] || cat {layout.APT_HELD}; printf '%s\\n' {words}; }} \\
  | sort -u >{layout.APT_HELD}.new
mv -f {layout.APT_HELD}.new {layout.APT_HELD}
"""


def look_script(names: Sequence[str], draggers: Sequence[str], options: str = "") -> str:
    """Policy and holds of the pins, and in simulation each command that may not move one."""
    quoted = " ".join(shlex.quote(name) for name in names)
    simulate = "\n".join(
        f"case $(apt-cache {options} policy {name}) in\n*Candidate*) try install {name};; esac"
        for name in map(shlex.quote, draggers)
    )
    return f"""LC_ALL=C; export LC_ALL
try() {{
  out=$(apt-get {options} -q -s "$@" 2>&1 </dev/null); rc=$?
  echo "## $* = $rc"; printf '%s\\n' "$out" | grep -E '^(Inst|Remv|Purg|E:) '
}}
echo '## policy'; apt-cache {options} policy {quoted} 2>&1
echo '## held'; apt-mark {options} showhold 2>&1
try dist-upgrade
{simulate}
echo '## end'
"""


def trial_script(
    files: Mapping[str, str],
    remove: Iterable[str],
    names: Sequence[str],
    uris: Sequence[str],
    settings: Mapping[str, str] | None = None,
    only: bool = False,
    hashed: Sequence[str] = (),
) -> str:
    """Prove new sources, keys and pins beside the real ones, before any of them is changed.

    ``files`` (text by path below /etc/apt) overlay a copy; only apt's lists are renewed.
    ``settings`` are apt.conf options of ours that are not on the node yet. ``only``: the host's
    own sources are left out. ``hashed``: packages whose debs' sha256 is asked for.
    Prints ``## update``, apt's words on failure, ``## policy``.
    """
    root = "/etc/apt/"
    lines = [update_functions(uris)]
    lines += [
        "trial=$(mktemp -d /run/rackpin-apt-trial.XXXXXXXX) && chmod 755 $trial || exit 70",
        "cd $trial && mkdir keyrings sources.list.d rackpin.d preferences.d apt.conf.d || exit 70",
        f"for f in {'' if only else 'sources.list sources.list.d'} preferences preferences.d; do",
        f"  [ ! -e {root}$f ] || cp -aL {root}$f $trial/ || exit 70; done",
    ]

    def place(path: str) -> str:
        return f'"$trial"/{shlex.quote(path.removeprefix(root))}'

    lines += [f"rm -f {place(path)}" for path in remove]
    for path, text in files.items():
        content = base64.b64encode(text.encode()).decode()
        lines.append(f"echo {content} | base64 -d >{place(path)} || exit 70")
    options = {"APT::Get::List-Cleanup": "0", **(settings or {})}
    lines += [
        "for f in $trial/sources.list.d/rackpin-*.sources $trial/rackpin.d/*.sources; do",
        f'  [ ! -e "$f" ] || sed -i "s|{root}keyrings/|$trial/keyrings/|" "$f" || exit 70; done',
        "chmod 644 $trial/keyrings/* $trial/*.d/* 2>/dev/null",
        f'set -- -o Dir::Etc::sourcelist="{"/dev/null" if only else "$trial/sources.list"}"'
        f' -o Dir::Etc::sourceparts="$trial/{"rackpin.d" if only else "sources.list.d"}"'
        ' -o Dir::Etc::preferences="$trial/preferences"'
        ' -o Dir::Etc::preferencesparts="$trial/preferences.d"'
        ' -o Dir::Cache::pkgcache="$trial/pkgcache" -o Dir::Cache::srcpkgcache="$trial/src" '
        + " ".join(f"-o {shlex.quote(f'{key}={value}')}" for key, value in options.items()),
        'refresh "$@"; echo "## update = $?"; cat "$said"',
    ]
    if names:
        quoted = " ".join(shlex.quote(name) for name in names)
        lines.append(f"echo '## policy'; LC_ALL=C apt-cache \"$@\" policy {quoted} 2>&1")
    if hashed:
        quoted = " ".join(shlex.quote(name) for name in hashed)
        lines.append(
            f"echo '## hashes'; LC_ALL=C apt-cache \"$@\" show {quoted} 2>/dev/null"
            " | grep -E '^(Package|Version|SHA256|$)'"
        )
    return "\n".join([*lines, "echo '## end'", ""])
