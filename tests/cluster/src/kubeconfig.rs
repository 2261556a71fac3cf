//! Kubeconfig files, with their certificates inside so that they can be copied anywhere.

use std::path::Path;

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::authority::{Authority, Credential, write};

/// Writes a kubeconfig with one context, named like the cluster.
pub(crate) fn write_kubeconfig(
    path: &Path,
    cluster: &str,
    server: &str,
    authority: &Authority,
    credential: &Credential,
) -> Result<()> {
    let authority = STANDARD.encode(authority.certificate());
    let certificate = STANDARD.encode(&credential.certificate);
    let key = STANDARD.encode(&credential.key);
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
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
"
        ),
    )
}
