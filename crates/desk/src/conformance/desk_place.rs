//! The desk as the place of runs.

use std::cell::RefCell;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolume;

use super::clean::delete_storage;
use super::leftovers::Leftovers;
use super::mounts::Mounts;
use super::on_desk::OnDesk;
use super::patience::Repeats;
use super::pending::Pending;
use super::place::Place;
use crate::api::Hold;
use crate::desk::{Ended, Stop};
use crate::order::Order;
use crate::setting::Setting;

/// Deletes what the runs of a case have left on storage that outlives the desk. Returns what is left nevertheless.
pub(super) async fn clean(place: &OnDesk) -> Vec<String> {
    if !place.parts.storage.is_shared() {
        return Vec::new();
    }
    let mut left = Vec::new();
    let beside = place.beside.take();
    for other in beside {
        left.extend(Box::pin(clean(&other)).await);
    }
    place.desk.api.hold(Hold::Never);
    left.extend(delete_storage(place, &place.parts.setting).await);
    left.extend(place.remove_unused());
    left
}

impl Place for OnDesk {
    fn kube_api(&self) -> String {
        self.desk.api.url()
    }

    fn attempt(&self, order: &Order, attempt: u32) -> u32 {
        let mut attempts = self.attempts.borrow_mut();
        let last = attempts.entry((order.operation().as_str(), order.id())).or_default();
        *last = attempt.max(*last + 1);
        *last
    }

    fn run<'a, 's: 'a>(&'a self, setting: &'a Setting, job: Job, stop: Stop<'s>) -> Pending<'a, Ended> {
        Box::pin(async move {
            let container = self.desk.container(setting, &job)?;
            self.desk.run(&container, stop).await
        })
    }

    fn leftovers(&self) -> &RefCell<Leftovers> {
        &self.left
    }

    fn repeats(&self) -> &Repeats {
        &self.repeats
    }

    fn volume<'a>(&'a self, name: &'a str) -> Pending<'a, Option<PersistentVolume>> {
        Box::pin(async move { Ok(self.desk.api.volume(name)) })
    }

    fn forget<'a>(&'a self, name: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            if let Some(volume) = self.desk.api.volume(name) {
                self.left.borrow_mut().forgets(volume);
            }
            self.desk.api.set(name, None);
            Ok(())
        })
    }

    /// Storage that outlives the desk is deleted by runs. What cannot be deleted stays noted, and the end of the case names
    /// it.
    fn clear(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            if self.parts.storage.is_shared() {
                delete_storage(self, &self.parts.setting).await;
            }
            self.desk.clear()
        })
    }

    fn desk(&self) -> Option<&OnDesk> {
        Some(self)
    }

    fn mounts(&self) -> Option<&dyn Mounts> {
        None
    }
}
