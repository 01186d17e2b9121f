"""gateway: nginx before the engines, on nodes of the group `gateway`. A stream is never cut."""

from rackpin.apt.wanted import pins
from rackpin.deploy import TRIGGERS, here
from rackpin.operations import after_change, owned_directory, owned_file, packages, units
from rackpin.operations_gateway import gateway_config, gateway_reload, nginx_apart
from rackpin.stages.gateway import config_files, configuration, digest_of

node = here()
wish = node.wish("gateway")
target = node.target
SETTLE_S = 30  # nginx is up at once

if wish.units:
    gateway = target.fleet.config.gateway
    read = config_files(target)
    nginx_apart(name="gateway: Debian's own service", stack=target.lock.stack, stage=wish)
    packages(
        name="gateway: packages",
        names=wish.packages,
        versions={pin.name: pin.version for pin in pins(target)},
        broken=node.survey.dpkg_broken,
        hold=True,
    )
    for directory in wish.directories:
        owned_directory(
            name=f"gateway: directory {directory.path}", directory=directory, stage=wish
        )
    for file in wish.files:
        if file not in read:
            owned_file(name=f"gateway: file {file.path}", file=file, stage=wish)
    after_change(
        name="gateway: daemon-reload",
        trigger="daemon-reload",
        command=TRIGGERS["daemon-reload"],
        stage=wish,
    )
    gateway_config(name="gateway: configuration", files=read, stage=wish)
    units(name="gateway: unit", names=wish.units, settle_s=SETTLE_S)
    gateway_reload(
        name="gateway: reload",
        address=target.node.address,
        port=gateway.port,
        tls=bool(gateway.tls_cert),
        digest=digest_of(configuration(target.fleet, target.node)),
        stage=wish,
    )
