//! The commands of the program for admins, with their output as values.

use std::collections::BTreeSet;
use std::process::Command;

use cluster::Cluster;
use serde_json::Value;

use crate::programs::tool;
use crate::ring::{OWN, Ring};

impl Ring {
    /// Runs a command as an admin does. Returns its exit code, and what it printed.
    pub async fn command(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = Command::new(tool());
        command.args(arguments).args(["--flex-namespace", OWN, "--config-namespace", &self.admin]);
        command.env("KUBECONFIG", self.cluster().kubeconfig());
        let ended = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
        (ended.status.code().unwrap(), text)
    }
}

/// Returns the output of the doctor, and its exit code.
pub fn doctor(ring: &Ring, config_namespace: &str, flags: &[&str]) -> (i32, Value) {
    let output = Command::new(tool())
        .args(["doctor", "-o", "json", "--flex-namespace", OWN, "--config-namespace", config_namespace])
        .args(["--confirm-after", "1s"])
        .args(flags)
        .env("KUBECONFIG", ring.cluster().kubeconfig())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let message = serde_json::from_str(&text);
    let message = message.unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code().unwrap(), message)
}

/// Returns kind and object of each finding, except for the admission policies, which a test may run without.
pub fn found(report: &Value) -> BTreeSet<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let findings = report["findings"].as_array().unwrap().iter();
    let findings = findings.filter(|finding| !text(&finding["kind"]).starts_with("policy-"));
    findings.map(|finding| (text(&finding["kind"]), text(&finding["object"]["name"]))).collect()
}

/// Runs `check`, and returns its exit code and its lines.
pub fn check(cluster: &Cluster, config_namespace: &str, flags: &[&str]) -> (i32, Vec<Value>) {
    let output = Command::new(tool())
        .args(["check", "-o", "json", "--flex-namespace", OWN, "--config-namespace", config_namespace])
        .args(flags)
        .env("KUBECONFIG", cluster.kubeconfig())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let report: Result<Value, _> = serde_json::from_str(&text);
    let report = report.unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code().unwrap(), report["checks"].as_array().unwrap().clone())
}

/// Selects the lines of one check, as marks and sentences.
pub fn lines_of<'a>(lines: &'a [Value], check: &str) -> Vec<(&'a str, &'a str)> {
    let lines = lines.iter().filter(|line| line["check"] == check);
    lines.map(|line| (line["mark"].as_str().unwrap(), line["found"].as_str().unwrap())).collect()
}
