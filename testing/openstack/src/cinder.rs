//! A real Cinder, as a process of the test.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::exchange::{Reply, ask};
use crate::keystone::{Keystone, admin_of_demo};
use crate::process::{Server, cached_database, free_port, installed, lab, python, run};
use crate::refuge::Refuge;

/// The backends, and the volume types of the same names.
const BACKENDS: [(&str, &str, &str); 5] = [
    ("iscsi", "Iscsi", "target_ip_address = 10.0.0.1\ntarget_secondary_ip_addresses = 10.0.0.2"),
    ("rbd", "Rbd", "rbd_pool = volumes\nrbd_user = lab"),
    ("fc", "FibreChannel", ""),
    ("other", "Other", ""),
    ("slow", "Iscsi", "target_ip_address = 10.0.0.3\nlab_delay = 3"),
];

/// The options of a Cinder.
#[derive(Default)]
pub struct Options<'a> {
    /// The Keystone that checks tokens, or none.
    pub keystone: Option<&'a Keystone>,
    /// The port, if it must be known before the start.
    pub port: Option<u16>,
}

/// A running Cinder.
pub struct Cinder {
    port: u16,
    server: Server,
    /// The port of its Keystone.
    keystone: Option<u16>,
    // Declared after the server, which writes into it.
    _folder: Refuge,
}

/// A project in a Cinder, with the rights of an admin, for the checks of tests. Each test has a project of its own.
pub struct Project<'a> {
    cinder: &'a Cinder,
    /// Its id, which without Keystone is its name.
    pub id: String,
}

impl Cinder {
    /// Starts a Cinder, and waits until it answers and has its volume types. These are `iscsi` with CHAP and two
    /// portals, `rbd` with cephx, `fc`, `other` of an unknown kind, and `slow`, iSCSI that takes three seconds.
    ///
    /// # Panics
    /// If it does not start; its log is in the message.
    pub fn start(options: Options<'_>) -> Self {
        let folder = Refuge::new("cinder.");
        let port = options.port.unwrap_or_else(free_port);
        let config = folder.path().join("cinder.conf");
        fs::create_dir(folder.path().join("locks")).expect("the test's own directory");
        fs::write(&config, configuration(folder.path(), port, options.keystone)).expect("the test's own directory");
        database(folder.path(), &config);
        let mut command = python("cinder");
        command.arg(lab().join("serve_cinder.py")).arg("--config-file").arg(&config);
        command.env("PYTHONPATH", lab()).env("PYTHONDONTWRITEBYTECODE", "1");
        let server = Server::start(command, &folder.path().join("log"), port, "/healthcheck");
        let keystone = options.keystone.map(Keystone::port);
        let cinder = Self { port, server, keystone, _folder: folder };
        let project = cinder.project("setup");
        for (name, ..) in BACKENDS {
            let body = json!({ "volume_type": { "name": name, "extra_specs": { "volume_backend_name": name } } });
            assert_eq!(project.ask("POST", "/types", Some(&body)).status, 200, "{}", cinder.log_end());
        }
        cinder
    }

    /// Returns the port on which it listens, on all addresses.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the end of its log.
    pub fn log_end(&self) -> String {
        self.server.log_end()
    }

    /// Returns a project. Without Keystone a project exists by its name; with Keystone there is only one.
    pub fn project(&self, name: &str) -> Project<'_> {
        let id = self.keystone.map_or_else(|| name.to_owned(), |port| admin_of_demo(port).1);
        Project { cinder: self, id }
    }
}

impl Project<'_> {
    /// Sends a request as an admin of the project.
    ///
    /// # Panics
    /// If there is no answer.
    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        let path = format!("/v3/{}{path}", self.id);
        let token = self.cinder.keystone.map_or_else(|| format!("admin:{}", self.id), |port| admin_of_demo(port).0);
        let reply = ask(self.cinder.port, method, &path, &[("X-Auth-Token", &token)], body);
        reply.unwrap_or_else(|| panic!("no answer to {method} {path}\n{}", self.cinder.log_end()))
    }

    /// Lists all volumes of the project.
    pub fn volumes(&self) -> Vec<Value> {
        let reply = self.ask("GET", "/volumes/detail", None);
        reply.body["volumes"].as_array().unwrap_or_else(|| panic!("{reply:?}")).clone()
    }

    /// Returns the only volume whose metadata has the id of a claim.
    ///
    /// # Panics
    /// If there is none, or more than one.
    pub fn volume_of(&self, id: &str) -> Value {
        let all = self.volumes();
        let mut of: Vec<_> = all.iter().filter(|one| one["metadata"]["flex-provisioner.claim-uuid"] == id).collect();
        assert_eq!(of.len(), 1, "{all:?}");
        of.remove(0).clone()
    }

    /// Lists all snapshots of the project.
    pub fn snapshots(&self) -> Vec<Value> {
        let reply = self.ask("GET", "/snapshots/detail", None);
        reply.body["snapshots"].as_array().unwrap_or_else(|| panic!("{reply:?}")).clone()
    }

    /// Requests an action on a volume.
    pub fn act(&self, volume: &Value, action: &str, argument: Value) -> Reply {
        let id = volume["id"].as_str().expect("a volume has an id");
        self.ask("POST", &format!("/volumes/{id}/action"), Some(&json!({ action: argument })))
    }

    /// Sets the status of a volume.
    ///
    /// # Panics
    /// If Cinder refuses.
    pub fn set_status(&self, volume: &Value, status: &str) {
        let reply = self.act(volume, "os-reset_status", json!({ "status": status }));
        assert_eq!(reply.status, 202, "{reply:?}");
    }

    /// Sets the quota of the project; -1 is no quota.
    ///
    /// # Panics
    /// If Cinder refuses.
    pub fn set_quota(&self, volumes: i64, gigabytes: i64) {
        let body = json!({ "quota_set": { "volumes": volumes, "gigabytes": gigabytes } });
        let reply = self.ask("PUT", &format!("/os-quota-sets/{}", self.id), Some(&body));
        assert_eq!(reply.status, 200, "{reply:?}");
    }
}

fn database(folder: &Path, config: &Path) {
    let code = "from cinder.cmd.manage import main; main()";
    cached_database("cinder.sqlite", folder, || {
        run(python("cinder").args(["-c", code]).arg("--config-file").arg(config).args(["db", "sync"]));
    });
}

/// Returns the configuration. Services never count as down: all heartbeats of a process go to the row of one service, and
/// may be late on a busy machine.
fn configuration(folder: &Path, port: u16, keystone: Option<&Keystone>) -> String {
    let etc = installed().join("cinder/etc/cinder");
    let (etc, folder) = (etc.display(), folder.display());
    let names: Vec<_> = BACKENDS.iter().map(|(name, ..)| format!("lab-{name}")).collect();
    let mut text = format!(
        "[DEFAULT]\n\
         state_path = {folder}\napi_paste_config = {etc}/api-paste.ini\n\
         resource_query_filters_file = {etc}/resource_filters.json\nrootwrap_config = {etc}/rootwrap.conf\n\
         auth_strategy = {}\nproject_id_regex = [0-9a-zA-Z_\\-]+\ntransport_url = fake:/\nhost = lab\n\
         service_down_time = 86400\n\
         osapi_volume_listen = 0.0.0.0\nosapi_volume_listen_port = {port}\nosapi_volume_workers = 1\n\
         enabled_backends = {}\ndefault_volume_type = iscsi\n\
         quota_volumes = -1\nquota_snapshots = -1\nquota_gigabytes = -1\n\
         [database]\nconnection = sqlite:///{folder}/cinder.sqlite\n\
         [oslo_concurrency]\nlock_path = {folder}/locks\n",
        if keystone.is_some() { "keystone" } else { "noauth" },
        names.join(","),
    );
    if let Some(keystone) = keystone {
        text += &keystone.for_cinder();
    }
    for (name, driver, more) in BACKENDS {
        text += &format!(
            "[lab-{name}]\nvolume_driver = lab_drivers.{driver}\nvolume_backend_name = {name}\n\
             lab_directory = {folder}/{name}\n{more}\n"
        );
    }
    text
}
