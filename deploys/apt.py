"""apt: repositories, their keys, and pins that prove their effect; guards against others' upgrades.

All of it is tried beside the node's own files first; a node where it fails is left as it was.
"""

from pyinfra import host

from rackpin.deploy import apply_files, here
from rackpin.facts_apt import Apt
from rackpin.operations_apt import (
    hold,
    overrule,
    prove_after,
    prove_before,
    remove_own,
    repair_dpkg,
    switch_off,
)
from rackpin.stages.apt import names, plan

node = here()
target = node.target
wish = node.wish("apt")
state = host.get_fact(Apt, names=names(target))
todo = plan(target, state)
node.run.notes += [f"{host.name}: {note}" for note in todo.notes]

prove_before(
    name="apt: proof before any change", run=node.run, target=target, state=state, plan=todo
)
repair_dpkg(name="apt: dpkg is whole", broken=node.survey.dpkg_broken)
switch_off(name="apt: others' entries for our repositories", state=state, plan=todo)
overrule(name="apt: others' pins that break ours", run=node.run)
remove_own(name="apt: files of an earlier wish", plan=todo)
apply_files("apt", wish)
hold(name="apt: holds", state=state, plan=todo)
prove_after(name="apt: proof of the pins", run=node.run, target=target, state=state, plan=todo)
