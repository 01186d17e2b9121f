# What a node is made of, from /sys, /proc and its ssh keys; `root` is empty except in tests.
part() { echo "@@ $1"; }
value() { w=; if [ -r "$1" ]; then read -r w <"$1"; printf '%s' "$w"; fi; } 2>/dev/null
slot() { s=$(readlink -f "$1" 2>/dev/null); echo "${s##*/}"; }

part board
for f in sys_vendor product_name product_serial product_uuid board_name board_serial bios_version; do
  v=$(value "$root/sys/class/dmi/id/$f")
  [ -z "$v" ] || echo "$f|$v"
done
part machine; value "$root/etc/machine-id"; echo
part driver; [ ! -r "$root/proc/driver/nvidia/version" ] || echo loaded
part gpus
for d in "$root"/proc/driver/nvidia/gpus/*; do
  [ -r "$d/information" ] || continue
  field() { sed -n "s/^$1:[[:space:]]*//p" "$d/information" | head -n 1; }
  echo "${d##*/}|$(field Model)|$(field 'GPU UUID')|$(field 'Video BIOS')"
done
part hcas
for d in "$root"/sys/class/infiniband/*; do
  [ -e "$d" ] || continue
  echo "${d##*/}|$(slot "$d/device")|$(value "$d/node_guid")|$(value "$d/board_id")|$(value "$d/fw_ver")"
done
part nics
for d in "$root"/sys/class/net/*; do
  [ -e "$d/device" ] || continue # bridges, tunnels and a container's own end of a cable
  mac=$(value "$d/bonding_slave/perm_hwaddr")
  echo "${d##*/}|$(slot "$d/device")|${mac:-$(value "$d/address")}"
done
part pci
for d in "$root"/sys/bus/pci/devices/*; do
  v=$(value "$d/vendor")
  case $v in 0x10de | 0x15b3) echo "${d##*/}|$v|$(value "$d/device")|$(value "$d/class")" ;; esac
done
part memory; while read -r key kib _; do
  [ "$key" != MemTotal: ] || { echo "$kib"; break; }
done <"$root/proc/meminfo"
part disks
for d in "$root"/sys/block/*; do
  [ -e "$d/device" ] || continue
  echo "${d##*/}|$(value "$d/device/model")|$(value "$d/device/serial")$(value "$d/serial")|$(value "$d/size")"
done
part keys
for f in "$root"/etc/ssh/ssh_host_*_key.pub; do
  [ -r "$f" ] && read -r _ key _ <"$f" && echo "$key"
done
part end
