//! The Secrets that a volume may name: those that its config names, and those that are its own.

use crate::config::Recipe;
use crate::model::claim::Claim;
use crate::model::named_secrets::NamedSecret;
use crate::model::volume::Volume;

/// Returns why the volume may not name one of its Secrets.
pub(super) fn verify_secrets(volume: &Volume, claim: &Claim, recipe: &Recipe) -> Option<String> {
    let written = volume.foreign_metadata.as_deref()?;
    let named = NamedByConfig::of(volume, claim, recipe);
    let refused = written.secrets.iter().find(|secret| !named.allows(secret, claim))?;
    let NamedSecret { name, namespace } = refused;
    let of_claim = if namespace.is_empty() { " (that of the claim)" } else { "" };
    let namespace = if namespace.is_empty() { &claim.name.namespace } else { namespace };
    Some(format!(
        "it names the Secret {name} in the namespace {namespace}{of_claim}, and the provisioner config does not; to allow it, name it in a parameter that ends with `secret-name`, and its namespace in the same parameter with `secret-namespace`, or list the namespace in `secret-namespaces`"
    ))
}

/// The Secrets that a config names for a claim.
struct NamedByConfig<'a> {
    recipe: &'a Recipe,
    /// The Secrets that the config gives to its runs, and those that pairs of parameters name.
    secrets: Vec<NamedSecret>,
    /// The namespaces that a parameter names without a Secret. The volume's own Secrets may be there.
    own_namespaces: Vec<String>,
    /// The names that a parameter names without a namespace.
    names: Vec<String>,
    id: String,
}

impl<'a> NamedByConfig<'a> {
    fn of(volume: &Volume, claim: &Claim, recipe: &'a Recipe) -> Self {
        let config = &recipe.config.namespace;
        let of_runs = recipe.secret_env.iter().chain(&recipe.secret_volume);
        let of_runs = of_runs.map(|name| NamedSecret { namespace: config.clone(), name: name.clone() });
        let mut named = NamedByConfig {
            recipe,
            secrets: of_runs.collect(),
            own_namespaces: vec![config.clone()],
            names: Vec::new(),
            id: claim.volume_id(),
        };
        let effective_config = &recipe.effective_config;
        let parameters = || effective_config.data.iter().chain(&effective_config.parameters);
        let value = |text: &str| resolved(text.trim(), volume, claim);
        let find = |stem: &str| parameters().find(|(key, _)| plain(key) == stem).map(|(_, text)| value(text));
        for (key, text) in parameters() {
            let key = plain(key);
            if let Some(stem) = key.strip_suffix("secretname") {
                let (name, namespace) = (value(text), find(&format!("{stem}secretnamespace")));
                named.secrets.push(NamedSecret { namespace: namespace.unwrap_or_else(|| config.clone()), name });
            } else if let Some(stem) = key.strip_suffix("secretnamespace") {
                let is_alone = find(&format!("{stem}secretname")).is_none();
                named.own_namespaces.extend(is_alone.then(|| value(text)));
            } else if key.ends_with("secret") {
                named.names.push(value(text));
            }
        }
        named
    }

    fn allows(&self, secret: &NamedSecret, claim: &Claim) -> bool {
        let namespace = if secret.namespace.is_empty() { &claim.name.namespace } else { &secret.namespace };
        let is_it = |named: &NamedSecret| named.namespace == *namespace && named.name == secret.name;
        let is_own = || {
            let of_volume = !self.id.is_empty() && secret.name.contains(&self.id);
            self.own_namespaces.contains(namespace) && (of_volume || self.names.contains(&secret.name))
        };
        self.recipe.secret_namespaces.contains(namespace) || self.secrets.iter().any(is_it) || is_own()
    }
}

/// Returns a key without what differs between the spellings of a parameter.
fn plain(key: &str) -> String {
    key.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

/// Returns a text with the values of the variables that CSI provisioners know. A variable of an annotation that the
/// claim does not have stays as it is, and names no Secret.
fn resolved(text: &str, volume: &Volume, claim: &Claim) -> String {
    let variables = [
        ("pv.name", volume.name.as_str()),
        ("pvc.name", claim.name.name.as_str()),
        ("pvc.namespace", claim.name.namespace.as_str()),
    ];
    let value = |variable: &str| {
        let annotation = variable.strip_prefix("pvc.annotations['").and_then(|rest| rest.strip_suffix("']"));
        match annotation {
            Some(key) => claim.metadata.get(key).map(String::as_str),
            None => variables.iter().find(|(name, _)| *name == variable).map(|(_, value)| *value),
        }
    };
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, variable, after)) =
        rest.split_once("${").and_then(|(before, after)| after.split_once('}').map(|(name, rest)| (before, name, rest)))
    {
        made.push_str(before);
        match value(variable) {
            Some(value) => made.push_str(value),
            None => made.push_str(&format!("${{{variable}}}")),
        }
        rest = after;
    }
    made.push_str(rest);
    made
}
