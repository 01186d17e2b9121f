"""image: base, python and serve's probe, as far as a container has them. Starts nothing.

Runs inside `docker build` (see Dockerfile) or from outside with pyinfra's own connector:
``RACKPIN_STACK=NAME RACKPIN_IMAGE=@docker/BASE pyinfra inventories/image.py deploys/image.py -y``.
"""

from pyinfra import host

from rackpin import layout
from rackpin.deploy import PreflightError, apply_files
from rackpin.facts import Text
from rackpin.inventory_problems import Problem
from rackpin.operations import activate, environment, packages, system_user
from rackpin.stack.lock import load_stack
from rackpin.stack.pins import StackError
from rackpin.stages import image

lock = load_stack(host.data.stack).lock
try:
    lock.require_os(*image.os_release(host.get_fact(Text, path="/etc/os-release")))
except StackError as error:
    problem = Problem("image", "os", str(error), "take a base image of an OS that is listed")
    raise PreflightError([problem], ["image"]) from error
target = image.target(lock, host.data.wheelhouse_url)
wish = image.desired(target)

system_user(name="image: system user", user=layout.USER, home=f"{layout.STATE}/home")
closure = lock.debs_closure.get(target.os_key)
exact = {deb.name: deb.version for deb in getattr(closure, "debs", ())}
packages(name="image: packages", names=wish.packages, versions=exact, broken=False)
apply_files("image", wish)
environment(name="image: environment", lock=lock, url=host.data.wheelhouse_url, stage=wish)
activate(name="image: current link", lock=lock, stage=wish)
