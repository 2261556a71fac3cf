//! A real Keystone, as a process of the test.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::exchange::{Reply, ask};
use crate::process::{Server, cached_database, free_port, lab, python, run};
use crate::refuge::Refuge;

/// The password of all users.
const PASSWORD: &str = "Passw0rd-of-tests";

/// A running Keystone with the project `demo`, in which `demo` is a member and `admin` an admin. Its catalog has one
/// Cinder in the region `RegionOne`.
pub struct Keystone {
    port: u16,
    cinder_port: u16,
    _server: Server,
    // Declared after the server, which writes into it.
    _folder: Refuge,
}

impl Keystone {
    /// The password of the user `demo`.
    pub const PASSWORD: &str = PASSWORD;

    /// Starts a Keystone.
    ///
    /// # Panics
    /// If it does not start; its log is in the message.
    pub fn start() -> Self {
        let folder = Refuge::new("keystone.");
        let (port, cinder_port) = (free_port(), free_port());
        let path = folder.path();
        fs::write(path.join("keystone.conf"), configuration(path)).expect("the test's own directory");
        fs::create_dir(path.join("keys")).expect("the test's own directory");
        let code = "from keystone.cmd.manage import main; main()";
        let manage = |arguments: &[&str]| {
            let mut command = python("keystone");
            command.args(["-c", code, "--config-file"]).arg(path.join("keystone.conf")).args(arguments);
            run(&mut command);
        };
        cached_database("keystone.sqlite", path, || manage(&["db_sync"]));
        manage(&["fernet_setup", "--keystone-user", "root", "--keystone-group", "root"]);
        let url = format!("http://127.0.0.1:{port}/v3");
        let own =
            ["--bootstrap-password", PASSWORD, "--bootstrap-region-id", "RegionOne", "--bootstrap-public-url", &url];
        manage(&[&["bootstrap"], &own[..]].concat());
        let mut command = python("keystone");
        command.arg(lab().join("serve_keystone.py")).args(["127.0.0.1", &port.to_string()]);
        command.env("OS_KEYSTONE_CONFIG_DIR", path).env("OS_KEYSTONE_CONFIG_FILES", "keystone.conf");
        let server = Server::start(command, &path.join("log"), port, "/v3");
        let keystone = Self { port, cinder_port, _server: server, _folder: folder };
        keystone.seed();
        keystone
    }

    /// Returns its address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v3", self.port)
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the port of Cinder in the catalog.
    pub fn cinder_port(&self) -> u16 {
        self.cinder_port
    }

    /// Returns the section about Keystone for Cinder's configuration.
    pub fn for_cinder(&self) -> String {
        format!(
            "[keystone_authtoken]\nwww_authenticate_uri = {0}\nauth_url = {0}\nauth_type = password\nusername = admin\n\
             password = {PASSWORD}\nuser_domain_name = Default\nproject_name = admin\nproject_domain_name = Default\n\
             interface = public\ntoken_cache_time = -1\n",
            self.url()
        )
    }

    /// Makes an application credential of the user `demo`, and returns its id and secret.
    ///
    /// # Panics
    /// If Keystone refuses.
    pub fn application_credential(&self) -> (String, String) {
        let reply = log_in(self.port, "demo", "demo");
        let user = reply.body["token"]["user"]["id"].as_str().expect("a user").to_owned();
        let body = json!({ "application_credential": { "name": "flex" } });
        let path = format!("/v3/users/{user}/application_credentials");
        let made = self.ask(["demo", "demo"], "POST", &path, &body, 201);
        let text = |key: &str| made["application_credential"][key].as_str().expect("a text").to_owned();
        (text("id"), text("secret"))
    }

    /// Revokes a token before its time.
    ///
    /// # Panics
    /// If Keystone refuses.
    pub fn revoke(&self, revoked: &str) {
        let own = token(&log_in(self.port, "admin", "admin"));
        let headers = [("X-Auth-Token", own.as_str()), ("X-Subject-Token", revoked)];
        let reply = ask(self.port, "DELETE", "/v3/auth/tokens", &headers, None).expect("Keystone answers");
        assert_eq!(reply.status, 204, "{reply:?}");
    }

    fn ask(&self, [user, project]: [&str; 2], method: &str, path: &str, body: &Value, status: u16) -> Value {
        let token = token(&log_in(self.port, user, project));
        let reply = ask(self.port, method, path, &[("X-Auth-Token", &token)], Some(body)).expect("Keystone answers");
        assert_eq!(reply.status, status, "{method} {path}: {reply:?}");
        reply.body
    }

    /// Creates the project, the user, their roles, and Cinder's entry in the catalog.
    fn seed(&self) {
        let admin = ["admin", "admin"];
        let make = |path: &str, body: Value| self.ask(admin, "POST", path, &body, 201);
        let id = |made: &Value, key: &str| made[key]["id"].as_str().expect("an id").to_owned();
        let find = |path: &str, key: &str| {
            self.ask(admin, "GET", path, &Value::Null, 200)[key][0]["id"].as_str().expect("an id").to_owned()
        };
        let project = id(&make("/v3/projects", json!({ "project": { "name": "demo" } })), "project");
        let user = json!({ "user": { "name": "demo", "password": PASSWORD } });
        let user = id(&make("/v3/users", user), "user");
        let admins_user = find("/v3/users?name=admin", "users");
        for (user, role) in [(&user, "member"), (&admins_user, "admin")] {
            let role = find(&format!("/v3/roles?name={role}"), "roles");
            self.ask(admin, "PUT", &format!("/v3/projects/{project}/users/{user}/roles/{role}"), &Value::Null, 204);
        }
        let service =
            id(&make("/v3/services", json!({ "service": { "type": "volumev3", "name": "cinder" } })), "service");
        let url = format!("http://127.0.0.1:{}/v3/%(project_id)s", self.cinder_port);
        let endpoint = json!({ "interface": "public", "region": "RegionOne", "service_id": service, "url": url });
        make("/v3/endpoints", json!({ "endpoint": endpoint }));
    }
}

/// Returns a token of an admin of the project `demo`, and the project's id.
pub fn admin_of_demo(port: u16) -> (String, String) {
    let reply = log_in(port, "admin", "demo");
    (token(&reply), reply.body["token"]["project"]["id"].as_str().expect("a project").to_owned())
}

fn log_in(port: u16, user: &str, project: &str) -> Reply {
    let domain = json!({ "id": "default" });
    let body = json!({ "auth": {
        "identity": { "methods": ["password"], "password": {
            "user": { "name": user, "domain": domain, "password": PASSWORD },
        } },
        "scope": { "project": { "name": project, "domain": domain } },
    } });
    let reply = ask(port, "POST", "/v3/auth/tokens", &[], Some(&body)).expect("Keystone answers");
    assert_eq!(reply.status, 201, "{reply:?}");
    reply
}

fn token(reply: &Reply) -> String {
    let line = reply.head.lines().find(|line| line.to_lowercase().starts_with("x-subject-token:"));
    line.and_then(|line| line.split_once(':')).expect("a token").1.trim().to_owned()
}

fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "[DEFAULT]\nlog_file = {folder}/keystone.log\n[database]\nconnection = sqlite:///{folder}/keystone.sqlite\n\
         [fernet_tokens]\nkey_repository = {folder}/keys\nmax_active_keys = 3\n[identity]\npassword_hash_rounds = 4\n"
    )
}
