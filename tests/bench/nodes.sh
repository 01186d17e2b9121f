# Nodes of a benchmark on one lab host. Each has its own network, address, name, sshd, /etc and
# /var/lib/rackpin; disk, packages, kernel and systemd are the host's. $1: the first number, $2: the last.
set -e
GATE=169.254.1.1
echo 1 >/proc/sys/net/ipv4/ip_forward
cat >/usr/local/sbin/bench-node <<'NODE'
#!/bin/sh
set -e
hostname "$1"
for path in /etc /var/lib/rackpin; do
  own=/run/bench/$1$path
  mkdir -p "$own/upper" "$own/work"
  mount -t overlay bench -o "lowerdir=$path,upperdir=$own/upper,workdir=$own/work" "$path"
done
echo "$1" >/etc/hostname
# as systemd does at boot: half of these settings are a network's own
[ ! -e /etc/sysctl.d/90-rackpin.conf ] || sysctl -q -p /etc/sysctl.d/90-rackpin.conf
exec /usr/sbin/sshd -D -o PidFile=none -o "ListenAddress=$2"
NODE
chmod 755 /usr/local/sbin/bench-node
mkdir -p /var/lib/rackpin
number=$1
while [ "$number" -le "$2" ]; do
  name=$(printf 'n%03d' "$number")
  address=10.88.$((number / 200)).$((number % 200 + 1))
  if [ ! -e "/run/netns/$name" ]; then
    ip netns add "$name"
    ip link add "v$number" type veth peer name host0 netns "$name"
    ip address add "$GATE/32" dev "v$number"
    ip link set "v$number" up
    ip route replace "$address/32" dev "v$number"
    ip -n "$name" link set lo up
    ip -n "$name" address add "$address/32" dev host0
    ip -n "$name" link set host0 up
    ip -n "$name" route add "$GATE" dev host0 scope link
    ip -n "$name" route add default via "$GATE" src "$address"
    systemd-run --quiet --collect --unit="bench-$name" \
      nsenter "--net=/run/netns/$name" unshare --uts --mount \
      /usr/local/sbin/bench-node "$name" "$address"
  fi
  number=$((number + 1))
done
