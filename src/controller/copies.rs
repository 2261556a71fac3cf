//! Copies of claims: observed for the decision, and its steps carried out.

use std::sync::Arc;

use contract::request::Original;

use super::Context;
use crate::claim::Claim;
use crate::claim::origin::{Copying, Origin, kept_for};
use crate::cluster::index::Index;
use crate::cluster::writes::WriteError;
use crate::config::classes::Identity;
use crate::volume::{Provenance, Volume};

/// What is seen of the claim that another is to be a copy of.
pub(super) struct Seen {
    claim: Option<Arc<Claim>>,
    volume: Option<Arc<Volume>>,
    /// Whose the volume is, and where it was made.
    provenance: Option<Provenance>,
}

impl Seen {
    /// Looks at the original of a claim, if it is to be a copy. `newer` is the original as it was written last.
    pub(super) fn of(copy: &Claim, index: &Index, identity: &Identity, newer: Option<&Claim>) -> Option<Self> {
        let claim = newer.cloned().map(Arc::new).or_else(|| index.claim(copy.original()?));
        copy.original()?;
        let volume = claim.as_ref().and_then(|claim| index.volume(claim.volume_name.as_deref()?));
        let ours = volume.as_ref().filter(|volume| volume.is_of(identity) && volume.is_adopted());
        let provenance = ours.and_then(|volume| serde_json::from_str(volume.provenance.as_deref()?).ok());
        Some(Seen { claim, volume, provenance })
    }

    /// For the decision.
    pub(super) fn origin(&self) -> Origin<'_> {
        Origin {
            claim: self.claim.as_deref(),
            volume: self.volume.as_deref(),
            ours: self.provenance.is_some(),
            node: self.provenance.as_ref().map_or("", |provenance| &provenance.node),
        }
    }

    /// Puts the finalizer on the original.
    pub(super) async fn keep(&self, context: &Context, copy: &Claim) -> Result<Option<Claim>, WriteError> {
        match &self.claim {
            Some(original) => context.writes.keep_original(original, &copy.uid).await.map(Some),
            None => Ok(None),
        }
    }

    /// What the run of a copy is told. All of it is read anew: what is to be read must be there, and stay.
    pub(super) async fn request(&self, context: &Context, copy: &Claim) -> Result<Original, WriteError> {
        let changed = || WriteError::Conflict(format!("the original of claim {}", copy.name));
        let (Some(claim), Some(volume)) = (&self.claim, &self.volume) else { return Err(changed()) };
        let fresh = context.writes.read_claim(&claim.name).await?.ok_or_else(changed)?;
        let fresh_is = Origin { claim: Some(&fresh), ..self.origin() };
        if fresh.uid != claim.uid || !fresh_is.is_kept_for(copy) || fresh_is.check(copy).is_err() {
            return Err(changed());
        }
        Ok(Original {
            id: volume.id().unwrap_or_default().to_owned(),
            pv_name: volume.name.clone(),
            source: context.writes.volume_source(volume).await?,
            size_bytes: volume.size.as_ref().copied().unwrap_or_default(),
            node: self.origin().node.to_owned(),
        })
    }
}

/// The claims for whose sake a claim is kept.
pub(super) fn copying(claim: &Claim, index: &Index) -> Vec<Copying> {
    let under_way = |uid: &str| {
        let copy = index.claim_by_id(uid)?;
        (copy.uid == uid && copy.is_held() && copy.original() == Some(&claim.name)).then(|| copy.name.clone())
    };
    kept_for(claim).map(|uid| Copying { uid: uid.to_owned(), under_way: under_way(uid) }).collect()
}

/// Takes off the finalizers of copies for which nothing is under way, by the API and not by the cache.
pub(super) async fn let_go(context: &Context, claim: &Claim, copies: &[String]) -> Result<Claim, WriteError> {
    for uid in copies {
        let known = context.shared.index().claim_by_id(uid).filter(|copy| copy.uid == *uid);
        let under_way = match known {
            Some(copy) => context.writes.read_claim(&copy.name).await?.is_some_and(|c| c.uid == *uid && c.is_held()),
            None => context.writes.has_claim(uid).await?,
        };
        if under_way {
            return Err(WriteError::Conflict(format!("the copy {uid} of claim {}", claim.name)));
        }
    }
    context.writes.let_original_go(claim, copies).await
}
