# Builds $env from the wheelhouse at $url; the values above come from the lock.
umask 022
export LC_ALL=C.UTF-8
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY PYTHONPATH PYTHONHOME
die() { echo "$1" >&2; exit "${2:-1}"; }

[ -x "$python" ] || die "$python: missing; this stack needs it (apt-get install python3)"
mkdir -p "$root/env" "$root/tools"

# One build a node at a time. The children hold the lock too, so a build that lost its
# connection is waited for and not trampled on.
exec 9>"$root/env/.lock"
flock -w "$lock_wait" 9 || die "$root/env/.lock: another build held it over $lock_wait s" 75

if [ "$(cat "$env/.complete" 2>/dev/null)" = "$digest" ]; then
  echo "complete: $env"
  exit 0
fi

work="$root/env/.work"
rm -rf "$env" "$work"
mkdir "$work"
clean() {
  code=$?
  trap - EXIT
  rm -rf "$work"
  if [ "$code" -ne 0 ]; then rm -rf "$env"; fi # gigabytes that nobody could use
  exit "$code"
}
trap clean EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

cat >"$work/fetch_uv.py" <<'RACKPIN_END'
@FETCH_UV@
RACKPIN_END
cat >"$work/versions.py" <<'RACKPIN_END'
@PROBE@
RACKPIN_END
cat >"$work/requirements.txt" <<'RACKPIN_END'
@REQUIREMENTS@
RACKPIN_END
cat >"$work/expected.json" <<'RACKPIN_END'
@EXPECTED@
RACKPIN_END

@SHARE@

uv="$root/tools/uv-$uv_version/uv"
if ! [ -x "$uv" ]; then
  "$python" -I "$work/fetch_uv.py" "$url/$uv_file" "$uv_sha256" "$uv" "$fetch_deadline" </dev/null
fi

# The cache lies on the environment's file system, so that files are linked and not copied.
export UV_CACHE_DIR="$work/cache" UV_NO_CONFIG=1 UV_PYTHON_DOWNLOADS=never
export UV_NO_PROGRESS=1 UV_HTTP_TIMEOUT=120 UV_LINK_MODE=hardlink
# stdin is this very script when it came through a pipe, so nobody else may read it.
timeout 120 "$uv" venv --quiet --python "$python" "$env" </dev/null
timeout "$install_deadline" "$uv" pip install --quiet --python "$env/bin/python" \
  --no-index --find-links "$url/" --no-deps --require-hashes --only-binary :all: \
  "$bytecode" --requirement "$work/requirements.txt" </dev/null

"$env/bin/python" -I "$work/versions.py" >"$work/found.json"
"$env/bin/python" -I - "$work/expected.json" "$work/found.json" <<'RACKPIN_END'
import json, sys
expected, found = (json.load(open(name)) for name in sys.argv[1:])
found = found["dists"]
wrong = [f"{n} {v}: found {found.get(n)}" for n, v in expected.items() if found.get(n) != v]
wrong += [f"{n} {found[n]}: not in the lock" for n in found if n not in expected]
sys.exit("environment differs from the lock: " + "; ".join(wrong) if wrong else 0)
RACKPIN_END

# On disk before it is called complete: a power cut must not leave a lie.
rm -rf "$work"
sync -f "$env"
echo "$digest" >"$env/.complete.part"
sync "$env/.complete.part"
mv "$env/.complete.part" "$env/.complete"
sync -f "$env"
echo "built: $env"
