//! The pods of the installation as dry runs, with the caller's rights.

use std::time::Duration;

use flex_core::config::classes::Identity;
use flex_core::preflight::Line;
use flex_core::preflight::pods::{self, Answer, Place, ShippedPod};
use flex_provisioner::api::says;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::PostParams;
use kube::{Api, Client};

/// The number of times that a pod is sent to a namespace which is still without an account.
const TRIES: usize = 10;
/// The time between two of them.
const DELAY: Duration = Duration::from_secs(1);

/// Returns a line for each pod. The pods have this image, if one is given.
pub(super) async fn lines(client: &Client, identity: &Identity, image: Option<&str>) -> Vec<Line> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let is_missing = match namespaces.get_opt(&identity.namespace).await {
        Ok(found) => found.is_none(),
        Err(error) => return vec![Line::unknown("pods", &says::error(&error))],
    };
    let place = Place { namespace: &identity.namespace, is_missing };
    let api: Api<Pod> = Api::namespaced(client.clone(), place.of_runs());
    let mut lines = Vec::new();
    for shipped in pods::shipped(identity, image) {
        lines.push(line(&api, &shipped, place).await);
    }
    lines
}

async fn line(api: &Api<Pod>, shipped: &ShippedPod, place: Place<'_>) -> Line {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let mut tries = 1;
    loop {
        let Err(error) = api.create(&params, &shipped.pod).await else { return pods::judge(shipped, place, None) };
        let answer = match &error {
            kube::Error::Api(status) => pods::answer(status.code, &status.message),
            _ => Answer::Unknown,
        };
        match answer {
            Answer::Refuses => return pods::judge(shipped, place, Some(&says::error(&error))),
            Answer::TooEarly if tries < TRIES => tries += 1,
            Answer::TooEarly | Answer::Unknown => return Line::unknown("pods", &says::error(&error)),
        }
        tokio::time::sleep(DELAY).await;
    }
}
