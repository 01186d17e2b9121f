# Sourced by bin/lab and bin/test: system packages and the tool's own environment.
# Needs root on Debian 12 or Ubuntu 22.04 and later; says exactly what is missing.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"
START=$(date +%s)
CACHE=${RACKPIN_CACHE:-/var/cache/rackpin}

say() { printf '\n== %3ds  %s\n' "$(($(date +%s) - START))" "$*"; }
stop() {
  printf '\n%s\n' "$*" >&2
  exit 2
}

# command=package: what the control machine of a lab needs.
PACKAGES=(
  systemd-nspawn=systemd-container mmdebstrap=mmdebstrap ssh=openssh-client ip=iproute2
  nft=nftables python3=python3 setsid=util-linux
)

require_machine() {
  [ "$(id -u)" = 0 ] || stop "bin/lab boots real hosts in namespaces: run it as root (sudo $0)."
  command -v apt-get >/dev/null ||
    stop "This is not Debian or Ubuntu (no apt-get): install the commands that ${PACKAGES[*]%%=*} name by hand."
  unshare --mount --pid --fork --net true 2>/dev/null ||
    stop "No new namespaces here (unshare failed): needs CAP_SYS_ADMIN, so not an ordinary container."
}

install_packages() {
  local missing=() pair
  for pair in "${PACKAGES[@]}"; do
    command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
  done
  # uv is fetched with Python's own venv, which Debian packs apart
  command -v uv >/dev/null || python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
  [ ${#missing[@]} -gt 0 ] || return 0
  say "Installing ${missing[*]}"
  apt-get -q -o DPkg::Lock::Timeout=600 update >/dev/null
  DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
    apt-get -q -y -o DPkg::Lock::Timeout=600 --no-install-recommends install "${missing[@]}" >/dev/null
}

install_tool() {
  if ! command -v uv >/dev/null; then
    say "Fetching uv into $CACHE/uv"
    [ -x "$CACHE/uv/bin/uv" ] || { python3 -m venv "$CACHE/uv" && "$CACHE/uv/bin/pip" -q install 'uv>=0.9,<1'; }
    PATH="$CACHE/uv/bin:$PATH"
  fi
  say "Tool environment (.venv, from uv.lock)"
  uv sync --frozen --quiet "$@"
  PATH="$ROOT/.venv/bin:$PATH"
  export PATH
}
