# Prints what a node's /sys and /proc say of cards, adapters and kernel. Reads only.
# $root is empty on a node; builtins instead of programs, as there are thousands of small files.
sys=$root/sys
one() { line=; read -r line 2>/dev/null <"$1"; printf '%s' "$line"; }
real() { readlink -f "$1"; }
# Bit 4 of the PCI Express device control: relaxed ordering.
relaxed() {
  uint "$1" 52 1
  hops=0
  while [ -n "$value" ] && [ "$value" -ge 64 ] && [ "$hops" -lt 48 ]; do
    at=$value hops=$((hops + 1))
    uint "$1" "$at" 2
    [ -n "$value" ] || break
    if [ $((value & 255)) -eq 16 ]; then
      uint "$1" $((at + 8)) 2
      [ -z "$value" ] || value=$(((value >> 4) & 1))
      return
    fi
    value=$((value >> 8))
  done
  value=
}

above=
echo "@@ gpus"
for d in "$sys"/bus/pci/devices/*; do
  is_card "$d" || continue
  path=$(real "$d") above="$above $path"
  echo "${d##*/}|$path|$(one "$d/numa_node")|$(one "$d/iommu_group/type")"
done
echo "@@ hcas"
for h in "$sys"/class/infiniband/*; do
  [ -e "$h" ] || continue
  path=$(real "$h/device") nets=
  [ -e "$h/device" ] || path=
  [ -z "$path" ] || above="$above $path"
  for n in "$h"/device/net/*; do [ -e "$n" ] && nets="$nets ${n##*/}"; done
  value=; [ -z "$path" ] || relaxed "$path/config"; ro=$value
  vf=; [ -e "$h/device/physfn" ] && vf=yes
  echo "hca|${h##*/}|$path|$(one "$h/device/numa_node")|$(one "$h/board_id")|$(one "$h/node_guid")|$nets|$ro|$vf"
  for p in "$h"/ports/*; do
    [ -e "$p" ] || continue
    class=; get "$h/tc/${p##*/}/traffic_class"; case $value in *=*) class=${value##*=} ;; esac
    echo "port|${p##*/}|$(one "$p/state")|$(one "$p/phys_state")|$(one "$p/rate")|$(one "$p/link_layer")|$(one "$p/sm_lid")|$class"
    get "$p/link_layer"; [ "$value" = Ethernet ] || continue
    for g in "$p"/gids/*; do
      get "$g"; gid=$value i=${g##*/}
      case $gid in '' | 0000:0000:0000:0000:0000:0000:0000:0000) continue ;; esac
      get "$p/gid_attrs/types/$i"; type=$value
      get "$p/gid_attrs/ndevs/$i"
      echo "gid|$i|$gid|$type|$value"
    done
  done
done
echo "@@ bridges"
[ -z "$above" ] || bridges_above $above | while read -r up; do
  at=
  if acs_at "$up/config"; then
    value=none; [ -z "$at" ] || uint "$up/config" $((at + 6)) 2
  else value=unseen; fi
  echo "${up##*/}|$value"
done
set -- $(uname -rm) # in this order, whatever that of its options
release=$1 machine=$2
echo "@@ kernel"; if [ -n "$root" ]; then one "$root/kernel"; echo; else echo "$release"; fi
echo "@@ virt"; if [ -n "$root" ]; then echo none; else systemd-detect-virt 2>/dev/null; fi
echo "@@ cmdline"; one "$root/proc/cmdline"; echo
echo "@@ grub"
set --
for f in "$root/etc/default/grub" "$root"/etc/default/grub.d/*.cfg; do [ ! -e "$f" ] || set -- "$@" "$f"; done
[ $# -eq 0 ] || grep -hE '^[[:space:]]*GRUB_CMDLINE_LINUX(_DEFAULT)?=' "$@"
menu=$root/boot/grub/grub.cfg
echo "@@ next"; [ ! -e "$menu" ] || grep -m 1 -E '^[[:space:]]*linux(efi)?[[:space:]]' "$menu"
echo "@@ modules"
uverbs=
while read -r m _; do
  case $m in nvidia* | mlx5_* | ib_* | rdma_* | gdrdrv) echo "$m" ;; esac
  [ "$m" != ib_uverbs ] || uverbs=yes
done 2>/dev/null <"$root/proc/modules"
echo "@@ peer_api"
if [ -n "$uverbs" ]; then
  if grep -qw ib_register_peer_memory_client "$root/proc/kallsyms" 2>/dev/null; then echo yes
  else echo no; fi
fi
echo "@@ flavour"
if [ -e "$root/proc/driver/nvidia/version" ]; then cat "$root/proc/driver/nvidia/version"
elif [ -z "$root" ] && [ -n "$above" ]; then modinfo -F license nvidia 2>/dev/null; fi
echo "@@ gdrcopy"
get "$root/sys/module/gdrdrv/version"; [ -z "$value" ] || echo "loaded $value"
value=
if [ -z "$above" ]; then : # neither card nor adapter
elif [ -z "$root" ]; then value=$(modinfo -F version gdrdrv 2>/dev/null)
else get "$root/gdrdrv"; fi
[ -z "$value" ] || echo "built $value"
[ -e "$root/dev/gdrdrv" ] && echo "node yes"
echo "@@ opensm"
for h in "$sys"/class/infiniband/*; do
  [ -e "$h" ] || break # none to manage: the processes need not be gone through
  for c in "$root"/proc/[0-9]*/comm; do get "$c"; [ "$value" != opensm ] || { echo yes; break 2; }; done
  break
done
echo "@@ iommu"; for i in "$sys"/class/iommu/*; do [ -e "$i" ] && echo "${i##*/}"; done
echo "@@ dkms"; [ -n "$root" ] || [ -z "$above" ] || timeout 20 dkms status 2>/dev/null
echo "@@ built"
tree=$root/lib/modules/$release/updates
for f in "$tree"/*.ko* "$tree"/*/*.ko*; do
  [ -e "$f" ] && [ -n "$above" ] && stat -c '%n %Y' "$f"
done
echo "@@ ofed"; [ -n "$root" ] || [ -z "$above" ] || timeout 20 ofed_info -s 2>/dev/null
echo "@@ symbols"
for f in "$root/usr/src/ofa_kernel/default/Module.symvers" \
  "$root/usr/src/ofa_kernel/$machine/$release/Module.symvers"; do
  [ -e "$f" ] && stat -c %Y "$f"
done
echo "@@ names"; [ ! -e "$root/etc/rackpin/hca-names" ] || cat "$root/etc/rackpin/hca-names"
echo "@@ end"
