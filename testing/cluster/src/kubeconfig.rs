//! Kubeconfig files that contain their certificates, so that they can be copied anywhere.

use std::path::Path;

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::authority::{Authority, Credential, write};

/// The credentials by which the API server knows a client.
pub(crate) enum User {
    Certificate(Credential),
    Token(String),
}

/// Writes a kubeconfig with one context, named like the cluster.
pub(crate) fn write_kubeconfig(
    path: &Path,
    cluster: &str,
    server: &str,
    authority: &Authority,
    user: &User,
) -> Result<()> {
    let authority = STANDARD.encode(authority.certificate());
    let user = match user {
        User::Certificate(Credential { certificate, key }) => format!(
            "{{client-certificate-data: {}, client-key-data: {}}}",
            STANDARD.encode(certificate),
            STANDARD.encode(key)
        ),
        User::Token(token) => format!("{{token: {token}}}"),
    };
    write(
        path,
        &format!(
            "apiVersion: v1
kind: Config
current-context: {cluster}
contexts:
- name: {cluster}
  context: {{cluster: {cluster}, user: {cluster}}}
clusters:
- name: {cluster}
  cluster:
    server: {server}
    certificate-authority-data: {authority}
users:
- name: {cluster}
  user: {user}
"
        ),
    )
}
