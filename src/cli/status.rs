//! `status`: shows the classes, the claims in progress, and the admission policies.

mod health;
mod row;

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use flex_contract::names;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::CSIStorageCapacity;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use self::health::Health;
use self::row::{Row, row};
use super::age::age;
use super::cluster::Cluster;
use super::flags::Output;
use super::out::say;
use crate::api::client::Connection;
use crate::api::policies as live;
use crate::capacity::Published;
use crate::config::classes::Classes;
use crate::config::pool::Watermarks;
use crate::model::volume::Volume;
use crate::policies::{self, CheckedPolicy};
use crate::text::line;

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    cluster: Cluster,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

pub(super) fn status(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let StatusArgs { cluster, output } = args;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (identity, table, claims, volumes, capacities, policies, unseen) = runtime.block_on(async {
        let (Connection { client, .. }, identity) = cluster.open().await?;
        let table = super::beside::classes(&client, &identity).await?;
        let ours = ListParams::default().labels(&format!("{}={}", names::LABEL_INSTANCE, identity.instance));
        let claims = Api::<PersistentVolumeClaim>::all(client.clone()).list(&ListParams::default()).await?.items;
        let volumes = Api::<PersistentVolume>::all(client.clone()).list(&ours).await?.items;
        let volumes: Vec<Volume> = volumes.iter().map(Volume::from).collect();
        let api: Api<CSIStorageCapacity> = Api::namespaced(client.clone(), &identity.namespace);
        let capacities = api.list(&ours).await.map_err(|error| error.to_string());
        let capacities = capacities.map(|list| list.items.iter().map(Published::from).collect::<Vec<_>>());
        let policies = live::read(&client).await.map(|live| policies::states(&live));
        let unseen = super::beside::unseen_configs(&client, &identity).await;
        anyhow::Ok((identity, table, claims, volumes, capacities, policies, unseen))
    })?;
    let now = crate::clock::Clock::default().now();
    let rows: Vec<Row> = claims.iter().filter_map(|object| row(&table, object, now)).collect();
    match output {
        Output::Json => {
            let mut all = to_json(&table, &rows, &volumes, &capacities, &policies);
            all["ignoredConfigs"] = json!(unseen.iter().map(ToString::to_string).collect::<Vec<_>>());
            say!("{all}");
        }
        Output::Table => {
            print(&table, &rows, &volumes);
            super::beside::print_unseen(&unseen, &identity);
            print_capacities(&capacities);
            print_policies(&policies);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Counts the claims of a class by state, such as `Bound 3, Failed 1`.
fn states(rows: &[Row], class: &str) -> Vec<(&'static str, usize)> {
    ["Bound", "Growing", "Modifying", "Running", "Waiting", "Failed", "Deleting"]
        .into_iter()
        .map(|state| (state, rows.iter().filter(|row| row.class == class && row.state == state).count()))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// The pooled volumes of a class, for one size.
struct PoolRow<'a> {
    class: &'a str,
    size: u64,
    watermarks: Watermarks,
    ready: usize,
}

/// Returns the pools of all classes.
fn pools<'a>(table: &'a Classes, volumes: &[Volume]) -> Vec<PoolRow<'a>> {
    let classes = table.iter().filter_map(|class| Some((class, class.recipe.as_ref().ok()?.pool.as_ref()?)));
    let kept = classes.flat_map(|(class, pool)| {
        pool.sizes.iter().map(move |(size, watermarks)| {
            let is_one = |volume: &&Volume| {
                let right = volume.pool_hash() == Some(&pool.hash) && !volume.terminating;
                right && volume.class == class.name && volume.pool_size == Some(*size)
            };
            (class, size, watermarks, is_one)
        })
    });
    kept.map(|(class, size, watermarks, is_one)| {
        let ready = volumes.iter().filter(is_one).count();
        PoolRow { class: &class.name, size: *size, watermarks: *watermarks, ready }
    })
    .collect()
}

fn print(table: &Classes, rows: &[Row], volumes: &[Volume]) {
    print_classes(table, rows, volumes);
    print_pools(table, volumes);
    print_verdicts(table);
    print_open_claims(rows);
    print_failed_expansions(volumes);
    print_failed_modifications(volumes);
    print_failed_deletions(volumes);
}

fn print_classes(table: &Classes, rows: &[Row], volumes: &[Volume]) {
    say!("{:<24} {:<12} {:<44} {:<28} STATE", "CLASS", "OBJECT", "CONFIG", "CLAIMS");
    for class in table.iter() {
        let config = class.recipe.as_ref().map(|recipe| recipe.version()).unwrap_or_else(|_| "-".into());
        let claims = states(rows, &class.name)
            .iter()
            .map(|(state, count)| format!("{state} {count}"))
            .collect::<Vec<_>>()
            .join(", ");
        let object = if class.has_object { "yes" } else { "label only" };
        say!(
            "{:<24} {object:<12} {config:<44} {:<28} {}",
            class.name,
            if claims.is_empty() { "-" } else { &claims },
            Health::of(&class.name, table, rows, volumes).verdict(class)
        );
    }
}

fn print_pools(table: &Classes, volumes: &[Volume]) {
    let pools = pools(table, volumes);
    if !pools.is_empty() {
        say!("\n{:<24} {:>10} {:>6} {:>10}", "POOL OF CLASS", "SIZE", "READY", "TO BE KEPT");
        for PoolRow { class, size, watermarks: Watermarks { low, high }, ready } in pools {
            let size = flex_contract::quantity::quantity(size).0;
            let kept = if low == high { low.to_string() } else { format!("{low}..{high}") };
            say!("{class:<24} {size:>10} {ready:>6} {kept:>10}");
        }
    }
}

fn print_verdicts(table: &Classes) {
    for (class, why) in table.all_left_to_external_provisioners() {
        say!("\nThe provisioner leaves StorageClass {class} to another: {why}");
    }
    for (name, verdict) in table.verdicts.iter().filter(|(_, verdict)| !verdict.warnings.is_empty()) {
        say!("\nConfigMap {name} is accepted, but:");
        verdict.warnings.iter().for_each(|warning| say!("  {warning}"));
    }
    for (name, verdict) in table.verdicts.iter().filter(|(_, verdict)| !verdict.problems.is_empty()) {
        say!("\nConfigMap {name} is refused:");
        verdict.problems.iter().for_each(|problem| say!("  {problem}"));
    }
}

fn print_open_claims(rows: &[Row]) {
    let open: Vec<_> = rows.iter().filter(|row| row.state != "Bound").collect();
    if !open.is_empty() {
        say!("\n{:<40} {:<20} {:<9} {:>7} {:>8} LAST FAILURE", "CLAIM", "CLASS", "STATE", "ATTEMPT", "AGE");
        for row in open {
            let Row { claim, class, state, attempt, .. } = row;
            let texts = if row.failure.is_some() { row.describe() } else { "-".into() };
            say!("{claim:<40} {class:<20} {state:<9} {attempt:>7} {:>8} {texts}", age(row.age));
        }
    }
}

fn print_failed_expansions(volumes: &[Volume]) {
    let stunted: Vec<_> =
        volumes.iter().filter_map(|volume| Some((volume, volume.last_failed_expansion.as_ref()?))).collect();
    if !stunted.is_empty() {
        say!("\n{:<48} {:>9} {:>9} {:>7} LAST FAILED EXPAND RUN", "VOLUME", "SIZE", "WANTED", "ATTEMPT");
        let text = |size: u64| flex_contract::quantity::quantity(size).0;
        stunted.iter().for_each(|(volume, failed)| {
            let size = volume.size.clone().map(text).unwrap_or_else(|_| "-".into());
            let why = line(&format!("{}: {}", failed.reason, failed.message), usize::MAX);
            let wanted = text(failed.size);
            say!("{:<48} {size:>9} {wanted:>9} {:>7} {why}", volume.name, failed.attempt)
        });
    }
}

fn print_failed_modifications(volumes: &[Volume]) {
    let unmodified = volumes.iter().filter_map(|volume| Some((volume, volume.pending_modification.as_ref()?)));
    let unmodified: Vec<_> = unmodified.filter(|(_, note)| note.failed_attempt > 0).collect();
    if !unmodified.is_empty() {
        say!("\n{:<48} {:>7} LAST FAILED MODIFY RUN", "VOLUME", "ATTEMPT");
        unmodified.iter().for_each(|(volume, note)| {
            let why = line(&format!("{}: {}", note.reason, note.message), usize::MAX);
            say!("{:<48} {:>7} {why}", volume.name, note.failed_attempt)
        });
    }
}

fn print_failed_deletions(volumes: &[Volume]) {
    let failed: Vec<_> = volumes.iter().filter_map(|volume| Some((volume, volume.last_failure.as_ref()?))).collect();
    if !failed.is_empty() {
        say!("\n{:<48} {:<10} LAST FAILED DELETE RUN", "VOLUME", "PHASE");
        failed.iter().for_each(|(volume, failure)| {
            say!("{:<48} {:<10} {}: {}", volume.name, volume.phase, failure.reason, failure.message)
        });
    }
}

/// The published capacities, or the reason why they are not known.
type Capacities = Result<Vec<Published>, String>;

fn print_capacities(capacities: &Capacities) {
    let published = match capacities {
        Ok(published) => published.iter().filter(|published| published.record.is_some()).collect::<Vec<_>>(),
        Err(why) => return say!("\nThe capacity that the scheduler sees is not known: {why}"),
    };
    if !published.is_empty() {
        say!("\n{:<24} {:<44} {:>12} LAST FAILED CAPACITY RUN", "CLASS", "WHERE", "FREE");
    }
    for published in published {
        let Published { class, topology, record, .. } = published;
        let at: Vec<_> = topology.iter().map(|(label, value)| format!("{label}={value}")).collect();
        let at = if at.is_empty() { "everywhere".to_owned() } else { at.join(",") };
        let why = record.as_ref().map(|record| record.message.as_str()).filter(|why| !why.is_empty()).unwrap_or("-");
        let why = line(why, usize::MAX);
        say!("{class:<24} {at:<44} {:>12} {why}", published.describe());
    }
}

/// The admission policies, or the reason why they are not known.
type Policies = Result<Vec<CheckedPolicy>, String>;

fn print_policies(policies: &Policies) {
    let states = match policies {
        Ok(states) => states,
        Err(why) => return say!("\nWhether the admission policies are installed is not known: {why}"),
    };
    say!("\n{:<14} {:<26} STATE", "POLICY", "KIND");
    for CheckedPolicy { policy, state } in states {
        say!("{:<14} {:<26} {}", policy.name, policy.kind.policy(), state.describe());
    }
    let off: Vec<_> = states.iter().filter(|checked| !checked.state.is_installed()).collect();
    if !off.is_empty() {
        say!("Off without them:");
        off.iter().for_each(|checked| say!("  {}", checked.policy.without));
        say!("Install them: {}", policies::INSTALL);
    }
}

fn to_json(
    table: &Classes,
    rows: &[Row],
    volumes: &[Volume],
    capacities: &Capacities,
    policies: &Policies,
) -> serde_json::Value {
    let classes: Vec<_> = table
        .iter()
        .map(|class| {
            let Health { failing, undeleted, slow, .. } = Health::of(&class.name, table, rows, volumes);
            json!({
                "name": class.name,
                "storageClassObject": class.has_object,
                "config": class.recipe.as_ref().ok().map(|recipe| recipe.version()),
                "lastGood": class.last_good,
                "failing": failing,
                "undeleted": undeleted,
                "slow": slow,
                "error": class.recipe.as_ref().err(),
                "claims": states(rows, &class.name).into_iter().collect::<BTreeMap<_, _>>(),
            })
        })
        .collect();
    let pools: Vec<_> = pools(table, volumes)
        .into_iter()
        .map(|kept| json!({ "class": kept.class, "bytes": kept.size, "ready": kept.ready, "low": kept.watermarks.low, "high": kept.watermarks.high }))
        .collect();
    let claims: Vec<_> = rows
        .iter()
        .map(|row| json!({ "claim": row.claim, "class": row.class, "state": row.state, "attempt": row.attempt, "ageSeconds": row.age, "lastFailure": row.describe() }))
        .collect();
    let configs: Vec<_> = table
        .verdicts
        .iter()
        .map(|(name, verdict)| json!({ "config": name.to_string(), "problems": verdict.problems, "warnings": verdict.warnings }))
        .collect();
    let volumes: Vec<_> = volumes
        .iter()
        .map(|volume| json!({ "volume": volume.name, "class": volume.class, "phase": volume.phase.as_str(), "lastFailure": volume.last_failure, "expansion": volume.last_failed_expansion, "modification": volume.pending_modification }))
        .collect();
    let capacities: Option<Vec<_>> = capacities.as_ref().ok().map(|published| {
        let asked = published.iter().filter_map(|published| Some((published, published.record.as_ref()?)));
        let entry = |(published, record): (&Published, &crate::capacity::CapacityRecord)| json!({ "class": published.class, "topology": published.topology, "bytes": published.bytes, "unlimited": published.is_unlimited(), "largest": published.largest, "lastFailure": record.message });
        asked.map(entry).collect()
    });
    json!({ "capacities": capacities, "classes": classes, "claims": claims, "configs": configs, "pools": pools, "volumes": volumes, "left": table.all_left_to_external_provisioners().collect::<BTreeMap<_, _>>(), "policies": policies.as_ref().ok().map(|states| policies::to_json(states)) })
}

#[cfg(test)]
mod tests {
    use flex_contract::exit::Reaction;
    use flex_contract::operation::Operation;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::row::failing;
    use super::*;
    use crate::config::classes::{Config, Identity, classes};
    use crate::run::failure::LastFailure;

    pub(super) fn failed(name: &str, created: i64, reaction: Reaction, at: i64, texts: &str) -> Row {
        let text = json!({ "operation": "provision", "attempt": 1, "at": at, "kind": reaction, "reason": "ExitCode", "message": texts });
        let failure = LastFailure::read(&text.to_string());
        assert!(failure.is_some());
        Row {
            claim: format!("team/{name}"),
            class: "c".into(),
            state: "Failed",
            attempt: 1,
            age: 1,
            created,
            running: None,
            failure,
        }
    }

    fn bound(name: &str) -> Row {
        Row {
            claim: format!("team/{name}"),
            class: "c".into(),
            state: "Bound",
            attempt: 1,
            age: 1,
            created: 1,
            running: None,
            failure: None,
        }
    }

    /// Returns the table of one class, whose config has this data.
    pub(super) fn one_class(mut data: serde_json::Value) -> Classes {
        let identity = Identity {
            provisioner: names::DEFAULT_PROVISIONER.into(),
            plugin: names::DEFAULT_PLUGIN.into(),
            instance: "default".into(),
            config_namespaces: vec!["admin".into()],
            namespace: "flex-provisioner".into(),
            shell_image: None,
        };
        (data["plugin-name"], data["image"]) = (json!(names::DEFAULT_PLUGIN), json!("example/image"));
        let labels = json!({ "type": "provisioner-config", "storage-class": "c" });
        let object = json!({ "metadata": { "name": "c", "namespace": "admin", "labels": labels }, "data": data });
        let config = Config::from(&serde_json::from_value::<ConfigMap>(object).unwrap());
        classes(&identity, &[config], &[], &BTreeMap::new(), &Default::default())
    }

    /// Returns an adopted volume of a class that was made at that time.
    pub(super) fn made(class: &str, created: i64) -> Volume {
        let provenance = "{}";
        let adoption_mark = Some(crate::model::volume::adoption_mark(provenance));
        let object = json!({ "metadata": { "name": "pvc-a" }, "spec": { "storageClassName": class } });
        let volume = Volume::from(&serde_json::from_value::<PersistentVolume>(object).unwrap());
        Volume { created, provenance: Some(provenance.into()), adoption_mark, ..volume }
    }

    #[test]
    fn a_class_fails_if_its_last_known_attempt_failed() {
        let retry = |name: &str, created, at| failed(name, created, Reaction::Retry, at, "the array is off");
        let never = |name: &str, created, at| failed(name, created, Reaction::Never, at, "too large");
        let deletes = || {
            let mut row = retry("a", 100, 200);
            row.failure.as_mut().unwrap().operation = Operation::Delete;
            row
        };
        let deleting = || Row { state: "Deleting", ..retry("a", 100, 200) };
        let unadopted = || Volume { adoption_mark: None, ..made("c", 300) };
        for (what, rows, volumes, expected) in [
            ("nothing is known", vec![], vec![], None),
            ("all is well", vec![bound("b")], vec![made("c", 100)], None),
            ("one fails from the first", vec![retry("a", 100, 200)], vec![], Some((1, "team/a"))),
            ("two fail", vec![retry("a", 1, 9), retry("b", 2, 8)], vec![made("other", 99)], Some((2, "team/a"))),
            (
                "it fails since a volume was made",
                vec![bound("b"), retry("a", 1, 9)],
                vec![made("c", 8)],
                Some((1, "team/a")),
            ),
            ("a volume was made since it failed", vec![retry("a", 1, 9)], vec![made("c", 10)], None),
            ("another can never be made", vec![never("a", 5, 90)], vec![made("c", 50)], None),
            (
                "nothing was made since it was asked for",
                vec![never("a", 60, 90)],
                vec![made("c", 50)],
                Some((1, "team/a")),
            ),
            ("what was made did not fit", vec![retry("a", 100, 200)], vec![unadopted()], Some((1, "team/a"))),
            ("a deletion fails", vec![deletes()], vec![], None),
            ("its user deletes it", vec![deleting()], vec![], None),
        ] {
            let found = failing("c", &rows, &volumes);
            let says = found.as_ref().map(|found| (found.claims, found.last.split(':').next().unwrap()));
            assert_eq!(says, expected, "{what}");
        }
    }

    #[test]
    fn the_state_of_a_failing_class_has_the_number_of_claims_and_the_last_message() {
        let table = one_class(json!({ "service-account-name": "c" }));
        let class = table.iter().next().expect("the config names a class");
        let says = |rows: &[Row]| Health::of("c", &table, rows, &[]).verdict(class);
        assert_eq!(says(&[bound("a")]), "ok");
        let row = |name: &str, texts: &str| failed(name, 1, Reaction::Retry, 9, texts);
        assert_eq!(
            says(&[row("a", "exit code 75: off")]),
            "failing: 1 claim, last team/a: ExitCode: exit code 75: off"
        );
        let long = says(&[row("a", &"x".repeat(1000)), row("b", &"x".repeat(1000))]);
        assert!(long.starts_with("failing: 2 claims, last team/") && long.len() < 250, "{long}");
    }
}
