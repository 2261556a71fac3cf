//! `explain`: where each value of a class comes from, what its image is asked to do, and what would refuse a claim.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use clap_complete::ArgValueCompleter;
use flex_contract::operation::Operation;
use flex_core::claim::decide::Rule;
use flex_core::claim::standing::{Obstacle, obstacle};
use flex_core::config::Recipe;
use flex_core::config::classes::{Class, ClassLookup, Identity};
use flex_core::config::explain::{ExplainedValue, Origin, explain};
use flex_core::model::claim::Claim;
use flex_core::object::ObjectName;
use flex_core::preflight::rights;
use flex_core::text::line;
use flex_provisioner::api::client::Connection;
use flex_provisioner::api::says;
use flex_provisioner::state::index::Index;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::collect;
use crate::complete::candidates::{classes, namespaces};
use crate::flags::Output;
use crate::markdown::plain;
use crate::name::{name, told};
use crate::out::say;
use crate::render::Given;
use crate::rights::missing_rights;
use crate::table::{Cell, Table, Tone};

/// The exit code if the class serves no claim now, or not this one.
const REFUSED: u8 = 2;
/// The longest value in the table. `-o json` has the whole.
const MAX_VALUE: usize = 80;
/// The account of a pod whose config names none.
const DEFAULT_ACCOUNT: &str = "default";

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The class.
    #[arg(add = ArgValueCompleter::new(classes))]
    class: String,
    /// Files or directories with claims, to see what would refuse them.
    #[arg(long = "claim", value_name = "FILE")]
    claims: Vec<PathBuf>,
    /// The namespace of claims whose file names none [default: that of the context].
    #[arg(short = 'n', long, value_name = "NAMESPACE", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(namespaces))]
    namespace: Option<String>,
    /// Print the keys that nobody has set, too, with their defaults. Documents have them in any case.
    #[arg(long)]
    all: bool,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    #[command(flatten)]
    cluster: Cluster,
}

/// What is known of a class.
struct Explanation {
    class: Class,
    values: Vec<ExplainedValue>,
    /// The rights that the account of the image does not have, or the reason why they are not known.
    missing_rights: Result<Vec<String>, String>,
    /// The claims of the files, each with the reason why the class would refuse it.
    claims: Vec<(ObjectName, Option<String>)>,
}

impl Explanation {
    fn is_refused(&self) -> bool {
        self.class.recipe.is_err() || self.claims.iter().any(|(_, refusal)| refusal.is_some())
    }
}

pub(super) fn explain_class(args: ExplainArgs) -> anyhow::Result<ExitCode> {
    let claims = Given::read(&args.claims)?.claims;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let explanation = runtime.block_on(read(&args, claims))?;
    match args.output.document(|| to_json(&explanation))? {
        Some(document) => say!("{document}"),
        None => print(&explanation, args.all),
    }
    Ok(ExitCode::from(if explanation.is_refused() { REFUSED } else { 0 }))
}

async fn read(args: &ExplainArgs, claims: Vec<Claim>) -> anyhow::Result<Explanation> {
    let (Connection { client, namespace, clock, .. }, identity) = args.cluster.open().await?;
    let (index, _) = collect::overview(&client, &identity, &clock).await?;
    let classes = index.classes();
    let class = match classes.lookup(&args.class) {
        ClassLookup::Ours(class) => class.clone(),
        ClassLookup::Foreign => {
            bail!("class {} belongs to another provisioner than {}", args.class, identity.provisioner)
        }
        ClassLookup::Unknown => bail!("class {} does not exist: {} status lists all classes", args.class, name()),
    };
    let objects = collect::class_objects(&client).await?;
    let object = objects.into_iter().find(|object| object.name == class.name);
    let (values, missing_rights) = match &class.recipe {
        Ok(recipe) => {
            let values = explain(recipe, index.config(&recipe.config), object.as_ref());
            let missing = missing_rights(&client, &identity, &account(recipe), rights::of_image()).await;
            (values, missing.map_err(|error| says::error(&error)))
        }
        Err(_) => (Vec::new(), Ok(Vec::new())),
    };
    let claims = claims.into_iter().map(|mut claim| {
        if claim.name.namespace.is_empty() {
            claim.name.namespace.clone_from(args.namespace.as_ref().unwrap_or(&namespace));
        }
        (claim.name.clone(), refusal(&claim, &class, &index, &identity))
    });
    let claims = claims.collect();
    Ok(Explanation { class, values, missing_rights, claims })
}

/// Returns the reason why a class would not begin an attempt for a claim now.
fn refusal(claim: &Claim, class: &Class, index: &Index, identity: &Identity) -> Option<String> {
    if let Some(other) = claim.class.as_ref().filter(|other| **other != class.name) {
        return Some(format!("it asks for class {other}"));
    }
    match obstacle(claim, class, Some(index.namespaces()), claim.is_pool_request(&identity.namespace)) {
        Some(Obstacle { rule: Rule::ConfigUnusable | Rule::ClaimRefused, why }) => Some(why),
        _ => index.quota_refusal(claim, class.recipe.as_deref().ok()?),
    }
}

/// Returns the account of the image.
fn account(recipe: &Recipe) -> ObjectName {
    ObjectName::new(&recipe.config.namespace, recipe.service_account.as_deref().unwrap_or(DEFAULT_ACCOUNT))
}

fn print(explanation: &Explanation, all: bool) {
    let Explanation { class, values, missing_rights, claims } = explanation;
    let coloured = crate::out::colours();
    match &class.recipe {
        Err(why) => say!("Class {} serves no claim now: {}", class.name, told(why)),
        Ok(recipe) => {
            let version = if class.last_good { ", its last valid version: the config has errors now" } else { "" };
            say!("Class {} is made by ConfigMap {}{version}.", class.name, recipe.config);
            say!("\n{}", value_table(values, all, coloured).trim_end());
            if !all {
                say!("All other keys have their defaults, which --all prints.");
            }
            say!("\n{}", operation_table(recipe, coloured).trim_end());
            say!("\n{}", account_text(recipe, missing_rights));
        }
    }
    for (claim, refusal) in claims {
        match refusal {
            Some(why) => say!("\nClaim {claim} would be refused: {}", told(why)),
            None => say!("\nClaim {claim} would be served."),
        }
    }
}

fn value_table(values: &[ExplainedValue], all: bool, coloured: bool) -> String {
    let mut table = Table::new(["KEY", "VALUE", "FROM"]);
    let shown = values.iter().filter(|explained| all || explained.origin != Origin::Default);
    for ExplainedValue { name, value, origin, is_parameter } in shown {
        let name = if *is_parameter { format!("{name} (parameter)") } else { name.clone() };
        let value = if *origin == Origin::Default { plain(value) } else { line(value, MAX_VALUE) };
        let tone = if matches!(origin, Origin::StoredConfig(_)) { Tone::Warning } else { Tone::Plain };
        table.row([name.into(), value.into(), Cell::toned(origin.to_string(), tone)]);
    }
    table.text(coloured)
}

/// Returns the operations of the image, and why it is not asked for the others.
fn operation_table(recipe: &Recipe, coloured: bool) -> String {
    let mut table = Table::new(["OPERATION", "THE IMAGE IS ASKED"]);
    for operation in Operation::all() {
        let asked = match operation.capability() {
            None => "yes".to_owned(),
            Some(capability) if recipe.can(capability) => "yes".to_owned(),
            Some(capability) => format!("no: the config does not declare `capabilities: {capability}`"),
        };
        table.row([operation.as_str().into(), asked.into()]);
    }
    table.text(coloured)
}

fn account_text(recipe: &Recipe, missing: &Result<Vec<String>, String>) -> String {
    let ObjectName { namespace, name: account } = &account(recipe);
    let named = format!("ServiceAccount {namespace}/{account}");
    match missing {
        Ok(missing) if missing.is_empty() => format!("{named} has the rights that each image needs."),
        Ok(missing) => format!(
            "{named} lacks rights that each image needs: {}.\n  To do: kubectl create clusterrolebinding flex-provisioner-image-{namespace}-{account} --clusterrole=flex-provisioner-image --serviceaccount={namespace}:{account}",
            missing.join(", ")
        ),
        Err(why) => {
            format!("Whether {named} has the rights that each image needs is not known: {}", told(why))
        }
    }
}

fn to_json(explanation: &Explanation) -> Value {
    let Explanation { class, values, missing_rights, claims } = explanation;
    let values = values.iter().map(|explained| {
        json!({
            "name": explained.name, "value": explained.value, "from": explained.origin.to_string(),
            "default": explained.origin == Origin::Default, "parameter": explained.is_parameter,
        })
    });
    let claims = claims.iter().map(|(claim, refusal)| json!({ "claim": claim.to_string(), "refusal": refusal }));
    let recipe = class.recipe.as_ref().ok();
    let operations = Operation::all().filter(|operation| {
        recipe.is_some_and(|recipe| operation.capability().is_none_or(|capability| recipe.can(capability)))
    });
    json!({
        "class": class.name,
        "error": class.recipe.as_ref().err(),
        "lastGood": class.last_good,
        "config": recipe.map(|recipe| recipe.version()),
        "values": values.collect::<Vec<_>>(),
        "operations": operations.map(Operation::as_str).collect::<Vec<_>>(),
        "missingRights": missing_rights.as_ref().ok(),
        "rightsNotKnown": missing_rights.as_ref().err(),
        "claims": claims.collect::<Vec<_>>(),
    })
}
