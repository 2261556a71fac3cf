"""A whole Cinder in one process: API, scheduler and one volume service for each backend, without a message broker.

    serve_cinder.py --config-file cinder.conf

Ends at once at SIGTERM; what it has done stands in its database.
"""

from cinder import monkey_patch

monkey_patch.patch()

import os
import shlex
import signal
import sys

from oslo_config import cfg
from oslo_log import log as logging
from oslo_privsep import priv_context

from cinder.common import config
from cinder.common import constants
from cinder import coordination
from cinder import objects
from cinder import rpc
from cinder import service
from cinder import utils
from cinder import version

CONF = cfg.CONF


def main():
    objects.register_all()
    CONF(sys.argv[1:], project="cinder", version=version.version_string())
    config.set_middleware_defaults()
    logging.setup(CONF, "cinder")
    priv_context.init(root_helper=shlex.split(utils.get_root_helper()))
    coordination.COORDINATOR.start()
    rpc.init(CONF)

    from cinder.scheduler import host_manager

    # A broker delivers plain dictionaries, and the API relies on that when it shows pools.
    host_manager.ReadOnlyDict.copy = lambda self: dict(self)

    services = []
    for backend in CONF.enabled_backends:
        CONF.register_opt(cfg.StrOpt("backend_host"), group=backend)
        services.append(
            service.Service.create(
                host=f"{CONF.host}@{backend}", service_name=backend, binary=constants.VOLUME_BINARY
            )
        )
    # The scheduler starts after the backends: it waits until all have reported their capabilities, for up to a minute.
    services.append(service.Service.create(host=CONF.host, binary=constants.SCHEDULER_BINARY))
    services.append(service.WSGIService("osapi_volume"))

    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    for one in services:
        one.start()
    for one in services:
        one.wait()


main()
