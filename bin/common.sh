# Sourced by bin/lab and bin/test: system packages and the tool's own environment.
# Needs root on Debian 12 or Ubuntu 22.04 and later; says exactly what is missing.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"
unset PYTHONDONTWRITEBYTECODE # each of some hundred runs would compile all modules anew
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

# Everything that is missing at once, each with what to do.
require_machine() {
  local missing=() pair
  [ "$(id -u)" = 0 ] || missing+=("root: it boots real hosts in namespaces; run it with sudo")
  command -v apt-get >/dev/null || for pair in "${PACKAGES[@]}"; do
    command -v "${pair%%=*}" >/dev/null ||
      missing+=("the command ${pair%%=*}: no apt-get here to install it with, so do it by hand")
  done
  if [ "$(id -u)" = 0 ]; then
    unshare --mount --pid --fork --net true 2>/dev/null ||
      missing+=("new namespaces: unshare failed; needs CAP_SYS_ADMIN, so no ordinary container")
    grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null ||
      missing+=("overlayfs: not in this kernel; load or build it")
  fi
  [ ${#missing[@]} = 0 ] || stop "This machine can't host the lab. Missing:$(printf '\n  - %s' "${missing[@]}")"
}

install_packages() {
  local missing=() pair
  for pair in "${PACKAGES[@]}"; do
    command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
  done
  [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing+=(debian-archive-keyring)
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
