"""base: kernel settings, limits, time, names."""

from pyinfra import host
from pyinfra.operations import files, server

from rackpin import layout
from rackpin.apt.wanted import pins
from rackpin.deploy import apply_files, here
from rackpin.facts import ABSENT, Paths, Text
from rackpin.fleet import quarantine
from rackpin.operations import merged_file, packages, system_user
from rackpin.operations_verify import quarantine_mark
from rackpin.stages.base import SWAP_MASK, hosts_file

node = here()
wish = node.wish("base")

system_user(name="base: system user", user=layout.USER, home=f"{layout.STATE}/home")
packages(
    name="base: packages",
    names=wish.packages,
    versions={pin.name: pin.version for pin in pins(node.target)},
    broken=node.survey.dpkg_broken,
    hold=True,
)
apply_files("base", wish)

hosts = host.get_fact(Text, path="/etc/hosts")
merged_file(
    name="base: /etc/hosts",
    path="/etc/hosts",
    wanted=hosts_file(hosts, node.target.fleet, node.target.node),
    current=hosts,
)
if node.survey.hostname != node.target.node.name:
    server.hostname(name="base: host name", hostname=node.target.node.name)
if node.survey.swaps:
    server.shell(name="base: swap off", commands=["swapoff -a"])
paths = host.get_fact(Paths, paths=wish.paths)
if paths.get(SWAP_MASK, ABSENT).target != "/dev/null":
    files.link(name="base: no swap at boot", path=SWAP_MASK, target="/dev/null")
quarantine_mark(
    name="base: quarantine",
    target=node.target,
    present=paths.get(quarantine.MARK, ABSENT).kind != "absent",
)
