//! The facts of a cluster for `check`. A fact that cannot be read is a line of its own, and no error.

use std::collections::{BTreeMap, BTreeSet};

use flex_contract::names;
use flex_core::config::classes::{Class, Classes, Identity};
use flex_core::object::ObjectName;
use flex_core::policies::{self, PolicyKind};
use flex_core::preflight::{self, ImageState, Line, TakenNames, rights};
use flex_provisioner::api::{pages, policies as live, says};
use flex_provisioner::clock::Clock;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};

use super::args::CheckArgs;
use super::{dry_run, pull};
use crate::flags::SHIPPED_SHELL;
use crate::rights::missing_rights;
use crate::{beside, leader};

/// The objects of the installation, as group, resource, and whether they are in a namespace.
const INSTALLED: [(&str, &str, bool); 10] = [
    ("", "namespaces", false),
    ("", "serviceaccounts", true),
    ("apps", "deployments", true),
    ("apps", "daemonsets", true),
    ("rbac.authorization.k8s.io", "clusterroles", false),
    ("rbac.authorization.k8s.io", "clusterrolebindings", false),
    ("rbac.authorization.k8s.io", "rolebindings", true),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", false),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", false),
    ("storage.k8s.io", "storageclasses", false),
];

/// Makes all checks.
pub(super) async fn lines(client: &Client, identity: &Identity, args: &CheckArgs) -> Vec<Line> {
    let version = client.apiserver_version().await;
    let version = version.as_ref().map(|version| (version.major.as_str(), version.minor.as_str()));
    let server = preflight::server(version.map_err(says::error).as_ref().map(|v| *v).map_err(String::as_str));
    let mut lines = vec![server];
    if lines[0].mark == preflight::Mark::Failed && version.is_err() {
        return lines;
    }
    lines.push(match args.pre {
        true => or_unknown("rights", rights_to_install(client, identity).await, |missing| {
            preflight::rights_to_install(&missing)
        }),
        false => {
            let account = format!("{}/{}", identity.namespace, args.service_account);
            let name = ObjectName::new(&identity.namespace, &args.service_account);
            let missing = missing_rights(client, identity, &name, rights::of_orchestrator()).await;
            or_unknown("rights", missing, |missing| preflight::rights_of_account(&account, &missing))
        }
    });
    lines.extend(policy_lines(client, args.pre).await);
    lines.push(or_unknown(
        "snapshots",
        serves(client, "snapshot.storage.k8s.io/v1", "volumesnapshots").await,
        preflight::snapshot_kinds,
    ));
    match taken_names(client, identity).await {
        Ok(taken) => lines.extend(preflight::taken_names(identity, &taken)),
        Err(error) => lines.push(Line::unknown("names", &says::error(&error))),
    }
    lines.push(or_unknown("default class", default_classes(client).await, |names| preflight::default_classes(&names)));
    let mut images: BTreeSet<String> = args.images.iter().cloned().collect();
    if args.pre {
        lines.extend(dry_run::lines(client, identity, args.images.first().map(String::as_str)).await);
    } else {
        lines.push(leader(client, identity).await);
        match beside::classes(client, identity).await {
            Ok(classes) => {
                lines.extend(preflight::configs(identity, &classes));
                images.extend(images_of(&classes, identity));
            }
            Err(error) => lines.push(Line::unknown("configs", &says::causes(&error))),
        }
    }
    match image_states(client, identity, images, args).await {
        Ok(states) => lines.extend(preflight::images(&states)),
        Err(error) => lines.push(Line::unknown("images", &says::causes(&error))),
    }
    lines
}

fn or_unknown<T>(check: &'static str, fact: kube::Result<T>, judge: impl FnOnce(T) -> Line) -> Line {
    match fact {
        Ok(fact) => judge(fact),
        Err(error) => Line::unknown(check, &says::error(&error)),
    }
}

/// Returns the objects of the installation that the caller may not create.
async fn rights_to_install(client: &Client, identity: &Identity) -> kube::Result<Vec<String>> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut missing = Vec::new();
    for (group, resource, in_namespace) in INSTALLED {
        let attributes = ResourceAttributes {
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            verb: Some("create".to_owned()),
            namespace: in_namespace.then(|| identity.namespace.clone()),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
        let review = SelfSubjectAccessReview { spec, ..Default::default() };
        let answer = reviews.create(&PostParams::default(), &review).await?;
        if !answer.status.is_some_and(|status| status.allowed) {
            missing.push(resource.to_owned());
        }
    }
    Ok(missing)
}

async fn policy_lines(client: &Client, pre: bool) -> Vec<Line> {
    const GROUP: &str = "admissionregistration.k8s.io/v1";
    if pre {
        let mutating = serves(client, GROUP, "mutatingadmissionpolicies").await;
        let validating = serves(client, GROUP, "validatingadmissionpolicies").await;
        let both = mutating.and_then(|mutating| Ok((mutating, validating?)));
        return vec![or_unknown("policies", both, |(mutating, validating)| {
            preflight::policy_kinds(|kind| if kind == PolicyKind::Mutating { mutating } else { validating })
        })];
    }
    match live::read(client).await {
        Ok(live) => preflight::policies(&policies::states(&live)),
        Err(why) => vec![Line::unknown("policies", &why)],
    }
}

/// Checks whether the API server serves a resource.
async fn serves(client: &Client, group_version: &str, resource: &str) -> kube::Result<bool> {
    match client.list_api_group_resources(group_version).await {
        Ok(list) => Ok(list.resources.iter().any(|served| served.name == resource)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

async fn taken_names(client: &Client, identity: &Identity) -> kube::Result<TakenNames> {
    // The orchestrator's account may list these, and get none.
    let named = ListParams::default().fields(&format!("metadata.name={}", identity.provisioner));
    let is_foreign = |driver: CSIDriver| driver.labels().get(names::LABEL_INSTANCE) != Some(&identity.instance);
    let drivers = pages::all(&Api::<CSIDriver>::all(client.clone()), named, is_foreign).await?;
    let foreign_driver = drivers.contains(&true);
    let named = ListParams::default().fields(&format!("metadata.name={}", identity.lease().name));
    let leases = pages::all(&Api::<Lease>::all(client.clone()), named, |lease| lease.namespace()).await?;
    let namespaces = leases.into_iter().flatten();
    let other_namespaces = namespaces.filter(|namespace| *namespace != identity.namespace).collect();
    Ok(TakenNames { foreign_driver, other_namespaces })
}

async fn default_classes(client: &Client) -> kube::Result<Vec<String>> {
    let classes = Api::<StorageClass>::all(client.clone());
    let classes = pages::all(&classes, ListParams::default(), |class| class).await?;
    let is_default =
        |class: &&StorageClass| class.annotations().get(names::DEFAULT_CLASS).is_some_and(|is| is == "true");
    Ok(classes.iter().filter(is_default).map(ResourceExt::name_any).collect())
}

async fn leader(client: &Client, identity: &Identity) -> Line {
    match leader::read(client, identity, &Clock::default()).await {
        Ok(leader) => preflight::leader(leader.missing.as_ref(), leader.holder.as_deref()),
        Err(error) => Line::unknown("leader", &says::causes(&error)),
    }
}

/// Returns the images of all classes that can be served. The image for scripts is known only if the environment or a
/// flag names it, as in the orchestrator's own container.
fn images_of(classes: &Classes, identity: &Identity) -> BTreeSet<String> {
    let named = identity.shell_image.clone().filter(|image| image != SHIPPED_SHELL);
    let image = |class: &Class| match class.recipe.as_ref().ok()?.image.as_str() {
        "" => named.clone(),
        image => Some(image.to_owned()),
    };
    classes.iter().filter_map(image).collect()
}

/// Returns the state of each image, and of those that pods of the orchestrator wait for.
async fn image_states(
    client: &Client,
    identity: &Identity,
    images: BTreeSet<String>,
    args: &CheckArgs,
) -> anyhow::Result<BTreeMap<String, ImageState>> {
    let nodes = pages::all(&Api::<Node>::all(client.clone()), ListParams::default(), |node| node).await?;
    let mut states: BTreeMap<_, _> = images.into_iter().map(|image| (image, ImageState::default())).collect();
    for (image, state) in &mut states {
        let has_it = |node: &&Node| {
            let listed = node.status.iter().flat_map(|status| status.images.iter().flatten());
            listed.flat_map(|listed| listed.names.iter().flatten()).any(|name| name == image)
        };
        state.nodes = nodes.iter().filter(has_it).count();
    }
    for namespace in identity.namespaces() {
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        let errors = pages::all(&pods, ListParams::default(), |pod| pull::errors(&pod)).await?;
        for pull::PullError { image, message: error } in errors.into_iter().flatten() {
            states.entry(image).or_default().error = Some(error);
        }
    }
    if args.pull {
        let namespace = if args.pre { "default" } else { &identity.namespace };
        for (image, state) in &mut states {
            *state = pull::pull(client, namespace, image, args.timeout).await?;
        }
    }
    Ok(states)
}
