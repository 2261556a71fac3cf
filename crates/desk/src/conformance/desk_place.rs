//! The desk as the place of runs.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolume;

use super::on_desk::OnDesk;
use super::place::{Pending, Place};
use crate::desk::{Ended, Stop};
use crate::order::Order;
use crate::setting::Setting;

impl Place for OnDesk {
    fn kube_api(&self) -> String {
        self.desk.api.url()
    }

    fn attempt(&self) -> u32 {
        1
    }

    fn run<'a, 's: 'a>(&'a self, setting: &'a Setting, job: Job, stop: Stop<'s>) -> Pending<'a, Ended> {
        Box::pin(async move {
            let container = self.desk.container(setting, &job)?;
            self.desk.run(&container, stop).await
        })
    }

    /// The desk forgets everything at the end of a case.
    fn begins(&self, _: &Order) {}

    fn succeeded(&self, _: &Order) {}

    fn volume<'a>(&'a self, name: &'a str) -> Pending<'a, Option<PersistentVolume>> {
        Box::pin(async move { Ok(self.desk.api.volume(name)) })
    }

    fn forget<'a>(&'a self, name: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            self.desk.api.set(name, None);
            Ok(())
        })
    }

    fn clear(&self) -> Pending<'_, ()> {
        Box::pin(async move { self.desk.clear() })
    }

    fn desk(&self) -> Option<&OnDesk> {
        Some(self)
    }
}
