# Shell that reads PCI devices out of /sys. Answers are left in variables: a subshell for each
# of some thousand small files would take seconds.
get() { # FILE; its first line in "value"
  value=
  read -r value 2>/dev/null <"$1"
}

# A number of a device's PCI configuration, in "value"; empty when it can't be read.
uint() { # FILE OFFSET BYTES
  set -- $(od -An -t "u$3" -j "$2" -N "$3" "$1" 2>/dev/null)
  value=$1
}

# Where a bridge has its Access Control Services: a walk through its extended capabilities.
acs_at() { # FILE; offset in "at", empty without them; fails when they can't be read
  at=256 hops=0
  uint "$1" 256 4
  [ -n "$value" ] || return 1
  while [ "$hops" -lt 48 ]; do
    case $value in '' | 0 | 4294967295) break ;; esac
    [ $((value & 65535)) -ne 13 ] || return 0
    at=$((value >> 20)) hops=$((hops + 1))
    [ "$at" -ge 256 ] || break
    uint "$1" "$at" 4
  done
  at=
}

# Every bridge above the given devices, each once.
bridges_above() {
  for path in "$@"; do
    up=${path%/*}
    while case ${up##*/} in [0-9a-f]*:*.*) true ;; *) false ;; esac; do
      echo "$up"
      up=${up%/*}
    done
  done | sort -u
}

is_card() { # DIRECTORY of a PCI device
  get "$1/vendor"
  [ "$value" = 0x10de ] || return 1
  get "$1/class"
  case $value in 0x0300* | 0x0302*) true ;; *) false ;; esac
}
