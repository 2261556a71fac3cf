"""Backends of the tests' Cinder. Volumes are sparse files; the data about connections are from Cinder's own code
where that needs no kernel (iSCSI with CHAP, Ceph), and is a dictionary of our own for Fibre Channel.

A volume whose name or type says so fails or takes its time:

    lab_delay            option of the backend: seconds that a creation takes
    a name with `fails`  its creation fails in the driver; with `fails-once`, that of the first such alone
    a name with `stays`  its deletion fails in the driver
"""

import os
import time

from oslo_config import cfg

from cinder import exception
from cinder.volume import driver
from cinder.volume.drivers import rbd
from cinder.volume import configuration
from cinder.volume.targets import fake

OPTIONS = [
    cfg.StrOpt("lab_directory", help="where the files of volumes are"),
    cfg.FloatOpt("lab_delay", default=0.0, help="seconds that a creation takes"),
    cfg.IntOpt("lab_gigabytes", default=1000, help="the size of the pool"),
]
cfg.CONF.register_opts(OPTIONS, group=configuration.SHARED_CONF_GROUP)


class Files(driver.VolumeDriver):
    """All but the connections."""

    VERSION = "1"
    PROTOCOL = "none"
    # The first volume or snapshot of each name with `fails-once`.
    failed = {}

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.configuration.append_config_values(OPTIONS)

    def do_setup(self, context):
        os.makedirs(self.configuration.lab_directory, exist_ok=True)

    def check_for_setup_error(self):
        pass

    def _path(self, of):
        return os.path.join(self.configuration.lab_directory, of.name)

    def _make(self, volume):
        time.sleep(self.configuration.lab_delay)
        self._fail(volume)
        with open(self._path(volume), "wb") as file:
            file.truncate(volume.size << 30)

    def _fail(self, of):
        name = of.display_name or ""
        # Cinder itself tries three times to make a volume.
        if "fails-once" in name and self.failed.setdefault(name, of.id) != of.id:
            return
        if "fails" in name:
            raise exception.VolumeBackendAPIException(data="this fails by its name")

    def create_volume(self, volume):
        self._make(volume)

    def create_volume_from_snapshot(self, volume, snapshot):
        if not os.path.exists(self._path(snapshot)):
            raise exception.VolumeBackendAPIException(data="the snapshot has no file")
        self._make(volume)

    def create_cloned_volume(self, volume, src_vref):
        if not os.path.exists(self._path(src_vref)):
            raise exception.VolumeBackendAPIException(data="the source has no file")
        self._make(volume)

    def delete_volume(self, volume):
        if "stays" in (volume.display_name or ""):
            raise exception.VolumeBackendAPIException(data="this volume stays by its name")
        if os.path.exists(self._path(volume)):
            os.unlink(self._path(volume))

    def extend_volume(self, volume, new_size):
        os.truncate(self._path(volume), new_size << 30)

    def create_snapshot(self, snapshot):
        self._fail(snapshot)
        with open(self._path(snapshot), "wb") as file:
            file.truncate(snapshot.volume_size << 30)

    def delete_snapshot(self, snapshot):
        if os.path.exists(self._path(snapshot)):
            os.unlink(self._path(snapshot))

    def ensure_export(self, context, volume):
        pass

    def create_export(self, context, volume, connector):
        pass

    def remove_export(self, context, volume):
        pass

    def terminate_connection(self, volume, connector, **kwargs):
        pass

    def _update_volume_stats(self):
        used = 0
        for entry in os.scandir(self.configuration.lab_directory):
            used += entry.stat().st_size >> 30
        self._stats = {
            "volume_backend_name": self.configuration.volume_backend_name,
            "vendor_name": "lab",
            "driver_version": self.VERSION,
            "storage_protocol": self.PROTOCOL,
            "pools": [
                {
                    "pool_name": "pool",
                    "total_capacity_gb": self.configuration.lab_gigabytes,
                    "free_capacity_gb": self.configuration.lab_gigabytes - used,
                    "reserved_percentage": 0,
                    "online_extend_support": True,
                }
            ],
        }


class Iscsi(Files):
    """The connections are those of Cinder's own iSCSI targets: IQNs, portals, and credentials for CHAP."""

    PROTOCOL = "iSCSI"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.target = fake.FakeTarget(configuration=self.configuration)

    def create_export(self, context, volume, connector):
        made = self.target.create_export(context, volume, self._path(volume))
        return {"provider_location": made["location"], "provider_auth": made["auth"]}

    def initialize_connection(self, volume, connector):
        return self.target.initialize_connection(volume, connector)

    def validate_connector(self, connector):
        return self.target.validate_connector(connector)


class Rbd(Files):
    """The connections are those of Cinder's own Ceph driver, but for the two questions to a Ceph cluster."""

    PROTOCOL = "ceph"

    initialize_connection = rbd.RBDDriver.initialize_connection

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.configuration.append_config_values(rbd.RBD_OPTS)
        self.keyring_data = "[client.lab]\n\tkey = AQBsZWN0dXJlIG5vdCBhIHJlYWwga2V5ISEhISEhISE=\n"

    def _get_mon_addrs(self):
        return ["192.0.2.1", "192.0.2.2"], ["6789", "6789"]

    def _get_config_tuple(self, remote=None):
        return "ceph", None, self.configuration.rbd_user, "7f2d1f3e-0000-4000-8000-00000000cef0"


class FibreChannel(Files):
    """The connections are those of an array with two ports."""

    PROTOCOL = "FC"

    def initialize_connection(self, volume, connector):
        targets = ["500A0981891B8DC5", "500A0981991B8DC5"]
        return {
            "driver_volume_type": "fibre_channel",
            "data": {
                "target_discovered": True,
                "target_lun": 7,
                "target_wwn": targets,
                "initiator_target_map": {wwpn: targets for wwpn in connector["wwpns"]},
                "volume_id": volume.id,
            },
        }

    def validate_connector(self, connector):
        if not connector.get("wwpns") or not connector.get("wwnns"):
            raise exception.InvalidConnectorException(missing="wwpns")


class Other(Files):
    """The connections are of a kind that no mapper knows."""

    PROTOCOL = "lab"

    def initialize_connection(self, volume, connector):
        return {"driver_volume_type": "lab", "data": {"volume_id": volume.id}}
