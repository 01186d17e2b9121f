#!/bin/sh
# What the survey asks of GPUs, driver, kernels and Secure Boot. `## NAME` begins a section, `= N`
# is the exit status of the command before it. What asks hardware, or much of the disk, ends by
# itself: the rest of the survey must not be lost with it. KEYS: what DKMS signs modules with.
LC_ALL=C; export LC_ALL
part() { printf '\n## %s\n' "$1"; }
have() { command -v "$1" >/dev/null 2>&1; }
part pci
if have lspci; then timeout 15 lspci -Dnn -d 10de:; echo "= $?"
elif [ -d /sys/bus/pci/devices ]; then
  for d in /sys/bus/pci/devices/*; do
    [ "$(cat "$d/vendor" 2>/dev/null)" = 0x10de ] || continue
    class=$(cut -c 3-6 "$d/class"); kind=Device
    case $class in 0300) kind='VGA compatible controller';; 0302) kind='3D controller';;
    0680) kind=Bridge;; esac
    echo "${d##*/} $kind [$class]: NVIDIA Corporation [10de:$(cut -c 3-6 "$d/device")]"
  done; echo '= 0'
else echo '= 127'; fi
part modules; lsmod; echo "= $?"
part loaded; cat /proc/driver/nvidia/version 2>/dev/null
part version; cat /sys/module/nvidia/version 2>/dev/null
part params; cat /proc/driver/nvidia/params 2>/dev/null
part secureboot
if have mokutil; then timeout 5 mokutil --sb-state 2>&1
elif [ ! -d /sys/firmware/efi ]; then echo 'no EFI'
else od -An -tu1 /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c 2>&1
fi
part keys
for k in $KEYS; do
  [ -e "$k" ] && have mokutil || continue
  echo "$k|$(timeout 5 mokutil --test-key "$k" 2>&1 | tr '\n' ' ')"; done
part running; uname -r
part boot; cat /proc/sys/kernel/random/boot_id
part images; ls /boot 2>/dev/null | grep -E '^(vmlinuz|initrd.img)-'
part headers
for d in /lib/modules/*; do [ -e "$d/build/Makefile" ] && echo "${d##*/}"; done
part built
for f in /lib/modules/*/updates/dkms/nvidia*.ko*; do
  [ -e "$f" ] && echo "$f|$(timeout 5 modinfo -F version "$f" 2>/dev/null)"; done
part dkms; if have dkms; then timeout 20 dkms status 2>&1; echo "= $?"; fi
part grub; cat /boot/grub/grub.cfg 2>/dev/null | base64 -w 0; echo
part grubenv; cat /boot/grub/grubenv 2>/dev/null | base64 -w 0; echo
part foreign
for f in /usr/bin/nvidia-uninstall /usr/bin/nvidia-installer /usr/src/nvidia-[0-9]* \
  /usr/lib/x86_64-linux-gnu/libcuda.so.[0-9]*.[0-9]* /usr/lib64/libcuda.so.[0-9]*.[0-9]*; do
  [ -e "$f" ] && ! dpkg -S "$f" >/dev/null 2>&1 && echo "$f"; done
part engines
systemctl list-units --plain --no-legend --state=active,activating,reloading,deactivating \
  'ray-*' 'vllm@*' | cut -d ' ' -f 1
part holders
timeout 10 find /proc/[0-9]*/fd -lname '/dev/nvidia*' 2>/dev/null | cut -d / -f 3 | sort -u |
  while read -r p; do echo "$p $(cat "/proc/$p/comm" 2>/dev/null)"; done
part errors
for l in /var/lib/dkms/nvidia*/*/build/make.log; do
  [ -e "$l" ] && grep -E -m 2 'error:|Error [0-9]|ERROR' "$l" | cut -c 1-300; done
part audit; dpkg --audit | head -n 20
part end
