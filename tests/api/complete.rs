//! A test of the completion of `kubectl flex` by kubectl itself.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use orchestrator::programs::tool;
use orchestrator::ring::{ADMIN, OWN, Ring, USER};
use orchestrator::wait::{unexpected, until};

#[tokio::test]
async fn kubectl_completes_the_words_after_kubectl_flex() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[]).await;
    ring.claim("a", "c").await;
    ring.stamped("a").await;
    let folder = tempfile::tempdir().unwrap();
    symlink(tool(), folder.path().join("kubectl-flex")).unwrap();
    let script = folder.path().join("kubectl_complete-flex");
    let text = Command::new(tool()).args(["completion", "kubectl"]).output().unwrap().stdout;
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let config = ring.cluster().kubeconfig();
    let completed = |words: &[&str]| {
        let mut kubectl = ring.cluster().kubectl();
        kubectl.env("PATH", &path).env("KUBECONFIG", &config).args(["__complete", "flex"]).args(words);
        let output = kubectl.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<_> = text.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect();
        (lines, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (words, expected) in [
        (&["tra"][..], "trace"),
        (&["trace", "-n", USER, ""], "a"),
        (&["explain", "--flex-namespace", OWN, "--config-namespace", ADMIN, ""], "c"),
    ] {
        // A completion that takes long is given up, and the person asks again.
        until(format!("{words:?} are completed"), || async {
            let found = completed(words);
            if found.0.contains(&expected.to_owned()) { Ok(()) } else { unexpected(found) }
        })
        .await;
    }
}
