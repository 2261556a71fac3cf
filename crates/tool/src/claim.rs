//! The claim that a command is about, by its own name or by that of its volume.

use std::fmt;

use anyhow::{Context as _, anyhow};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use clap_complete::ArgValueCompleter;
use flex_core::config::classes::Identity;
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, Client};

use crate::complete::candidates::{claims, namespaces};
use crate::kind::Kind;
use crate::left::Left;

/// The name of a claim.
#[derive(Clone, Debug, Args)]
pub(super) struct ClaimName {
    /// The claim, as NAME, NAMESPACE/NAME or pvc/NAME; or its volume, as pv/NAME.
    #[arg(value_name = "CLAIM", add = ArgValueCompleter::new(claims))]
    claim: String,
    /// The namespace of the claim [default: that of the context].
    #[arg(short = 'n', long, value_name = "NAMESPACE", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(namespaces))]
    namespace: Option<String>,
}

impl ClaimName {
    /// Returns what the person has named. `of_context` is the namespace of the kubeconfig's context.
    ///
    /// # Errors
    /// The name is not that of a claim or a volume.
    pub(super) fn named(&self, of_context: &str) -> anyhow::Result<Named> {
        Named::read(&self.claim, self.namespace.as_deref(), of_context)
    }
}

/// What a person names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// A claim.
    Claim(ObjectName),
    /// A volume.
    Volume(String),
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Named::Claim(name) => write!(f, "claim {name}"),
            Named::Volume(name) => write!(f, "volume {name}"),
        }
    }
}

/// What exists of a claim that a person has named.
pub(super) enum Found {
    /// The claim.
    Claim(Box<PersistentVolumeClaim>),
    /// The claim is gone, or the volume never had one.
    Left(Box<Left>),
}

impl Named {
    /// Reads a name, which may have a kind and a namespace.
    ///
    /// # Errors
    /// The text is not the name of a claim or a volume, or names another namespace than the flag.
    pub(super) fn read(text: &str, flag: Option<&str>, of_context: &str) -> anyhow::Result<Self> {
        let words: Vec<&str> = text.split('/').collect();
        let (kind, words) = match words.as_slice() {
            [first, rest @ ..] if !rest.is_empty() && Kind::read(first).is_some() => (Kind::read(first), rest),
            all => (None, all),
        };
        let wrong = "is not the name of a claim: write NAME, NAMESPACE/NAME, pvc/NAME, or pv/NAME for its volume";
        if words.iter().any(|word| word.is_empty()) {
            return Err(anyhow!("{text} {wrong}"));
        }
        match (kind, words, flag) {
            (Some(Kind::Volume), [name], _) => Ok(Named::Volume((*name).to_owned())),
            (None | Some(Kind::Claim), [name], _) => {
                Ok(Named::Claim(ObjectName::new(flag.unwrap_or(of_context), *name)))
            }
            (None | Some(Kind::Claim), [namespace, _], Some(flag)) if flag != *namespace => {
                Err(anyhow!("{text} is not in namespace {flag}: write the namespace once"))
            }
            (None | Some(Kind::Claim), [namespace, name], _) => Ok(Named::Claim(ObjectName::new(*namespace, *name))),
            _ => Err(anyhow!("{text} {wrong}")),
        }
    }

    /// Reads the claim; if it is gone, what is left of it.
    ///
    /// # Errors
    /// If nothing exists, or if it cannot be read.
    pub(super) async fn find(&self, client: &Client, identity: &Identity) -> anyhow::Result<Found> {
        match self {
            Named::Claim(name) => match claim(client, name).await? {
                Some(claim) => Ok(Found::Claim(Box::new(claim))),
                None => Ok(Found::Left(Box::new(Left::of_claim(client, identity, name).await?))),
            },
            Named::Volume(name) => {
                let volume = Api::<PersistentVolume>::all(client.clone()).get_opt(name).await;
                let volume = volume.with_context(|| format!("volume {name} cannot be read"))?;
                let volume = Volume::from(&volume.with_context(|| format!("volume {name} does not exist"))?);
                if let Some(reference) = &volume.claim_ref
                    && let Some(claim) = claim(client, &reference.name).await?
                    && claim.metadata.uid == reference.uid
                {
                    return Ok(Found::Claim(Box::new(claim)));
                }
                Ok(Found::Left(Box::new(Left::of_volume(client, identity, volume).await)))
            }
        }
    }
}

async fn claim(client: &Client, name: &ObjectName) -> anyhow::Result<Option<PersistentVolumeClaim>> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &name.namespace);
    claims.get_opt(&name.name).await.with_context(|| format!("claim {name} cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_claim_may_have_its_kind_and_its_namespace() {
        let of = |text: &str, flag: Option<&str>| {
            Named::read(text, flag, "default").map(|name| name.to_string()).map_err(|error| error.to_string())
        };
        for (text, flag, expected) in [
            ("data", None, "claim default/data"),
            ("data", Some("team"), "claim team/data"),
            ("team/data", None, "claim team/data"),
            ("team/data", Some("team"), "claim team/data"),
            ("pvc/data", Some("team"), "claim team/data"),
            ("PVC/data", None, "claim default/data"),
            ("persistentvolumeclaim/data", None, "claim default/data"),
            ("persistentvolumeclaim/team/data", None, "claim team/data"),
            ("persistentvolumeclaims/team/data", Some("team"), "claim team/data"),
            ("pv/pvc-u", Some("team"), "volume pvc-u"),
            ("persistentvolume/pvc-u", None, "volume pvc-u"),
            ("persistentvolumes/pvc-u", None, "volume pvc-u"),
            // A claim may have the name of a kind.
            ("pvc", None, "claim default/pvc"),
            ("pvc/pv/data", None, "claim pv/data"),
        ] {
            assert_eq!(of(text, flag).as_deref(), Ok(expected), "{text} {flag:?}");
        }
        for text in ["team/data", "pvc/team/data"] {
            assert!(of(text, Some("other")).is_err_and(|why| why.contains("write the namespace once")), "{text}");
        }
        for wrong in ["", "/data", "team/", "a/b/c", "pvc/", "pv/", "pv/team/pvc-u", "pvc/a/b/c"] {
            assert!(of(wrong, None).is_err_and(|why| why.contains("write NAME, NAMESPACE/NAME")), "{wrong}");
        }
    }
}
