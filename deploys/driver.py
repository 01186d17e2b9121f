"""driver: kernel, NVIDIA's driver, module options, daemons; a reboot only where it must be.

What needs a person's decision (Secure Boot, a .run install, a change under a running engine) was
refused before any node was touched.
"""

from pyinfra import host

from rackpin.deploy import apply_files, here
from rackpin.driver import decide, scripts
from rackpin.driver.state import DriverState
from rackpin.driver.want import driver_packages, kernel_packages, versions, want
from rackpin.facts_driver import Gpu
from rackpin.operations import packages, units
from rackpin.operations_driver import load, modules, no_fabric_manager, proof, reboot

node = here()
wish = node.wish("driver")
driver = want(node.target)
state = host.get_fact(Gpu) if driver else None
SETTLE_S = 120  # eight cards are initialised one after the other
known = isinstance(state, DriverState)  # else the first operation stops the node and says why

if driver is None:
    if node.target.lock.host.driver:
        node.run.notes.append(f"{host.name}: driver: the inventory has no GPU here; left alone")
elif known and (why := decide.absent(state)):
    node.run.notes.append(
        f"{host.name}: driver: {why}, the inventory says {driver.gpus}; left alone"
    )
else:
    notes = decide.notes(driver, state) if known else []
    node.run.notes += [f"{host.name}: driver: {note}" for note in notes]
    # First, so that the images of the next boot have them.
    apply_files("driver", wish)
    pins = versions(node.target)
    if kernel := kernel_packages(node.target):
        packages(
            name="driver: kernel, headers and compiler",
            names=kernel,
            versions=pins,
            broken=node.survey.dpkg_broken,
            hold=True,
            on_failure=scripts.build_log_script(),
        )
    packages(
        name="driver: packages",
        names=driver_packages(node.target),
        versions=pins,
        broken=False,
        hold=True,
        on_failure=scripts.build_log_script(),
    )
    modules(name="driver: modules for the running and the next kernel", run=node.run, want=driver)
    load(name="driver: module", run=node.run, want=driver)
    reboot(name="driver: reboot", run=node.run, want=driver)
    no_fabric_manager(name="driver: no fabric manager without NVSwitches", want=driver)
    units(name="driver: daemons", names=wish.units, settle_s=SETTLE_S)
    proof(name="driver: proof", run=node.run, want=driver)
