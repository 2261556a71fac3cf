//! The driver: its name, its capabilities, and its calls with their time limit.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::error::Error;
use std::future::Future;
use std::time::{Duration, Instant};

use csi_spec::csi::controller_client::ControllerClient;
use csi_spec::csi::controller_service_capability::{self, rpc};
use csi_spec::csi::identity_client::IdentityClient;
use csi_spec::csi::plugin_capability::{self, service};
use csi_spec::csi::{
    ControllerGetCapabilitiesRequest, GetPluginCapabilitiesRequest, GetPluginInfoRequest, ProbeRequest,
};
use flex_image_kit::Failure;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

use crate::connection::{chain, connect, nobody};
use crate::parameters::Parameters;
use crate::trouble::{Kind, Trouble, name};

/// Marks a status that no driver sent, because the connection was lost: the call may be in progress.
fn lost(status: Status) -> Status {
    match status.source() {
        Some(cause) if status.code() != Code::DeadlineExceeded => Status::unavailable(chain(cause)),
        _ => status,
    }
}

/// The largest answer that is read, in bytes. Lists are read in pages.
const LARGEST: usize = 64 << 20;

/// A driver that answers and is ready.
pub struct Driver {
    channel: Channel,
    call: Duration,
    /// The name of the driver, which PersistentVolumes contain.
    pub name: String,
    services: BTreeSet<i32>,
    expands: bool,
    calls: BTreeSet<i32>,
    doing: RefCell<&'static str>,
}

impl Driver {
    /// Waits until the driver answers and is ready, and asks for its name.
    ///
    /// # Errors
    /// If it is not ready in time, has another name than the config says, or does not tell its capabilities.
    pub async fn reach(parameters: &Parameters) -> Result<Self, Failure> {
        let until = Instant::now() + parameters.connect;
        let channel = connect(parameters, until).await?;
        let mut driver = Driver {
            channel,
            call: parameters.call,
            name: String::new(),
            services: BTreeSet::new(),
            expands: false,
            calls: BTreeSet::new(),
            doing: RefCell::new("it was waited for"),
        };
        driver.ready(parameters, until).await?;
        driver.learn().await.map_err(|trouble| trouble.failure(false))?;
        match &parameters.driver {
            Some(wanted) if *wanted != driver.name => Err(Failure::config(format!(
                "the driver at {} is {}, and the config says csi-driver: {wanted}",
                parameters.endpoint, driver.name
            ))),
            _ if driver.name.is_empty() => {
                Err(Failure::retry(format!("the driver at {} does not say its name", parameters.endpoint)))
            }
            _ => Ok(driver),
        }
    }

    /// Returns the same connection for one member of a batch, whose calls are logged separately.
    pub fn for_member(&self) -> Self {
        Driver {
            channel: self.channel.clone(),
            call: self.call,
            name: self.name.clone(),
            services: self.services.clone(),
            expands: self.expands,
            calls: self.calls.clone(),
            doing: RefCell::new("what others of the batch asked for"),
        }
    }

    /// Asks until the driver is ready. A driver without an answer to that counts as ready.
    async fn ready(&self, parameters: &Parameters, until: Instant) -> Result<(), Failure> {
        let mut pause = Duration::from_millis(50);
        loop {
            let asked = self.call("Probe", "", async {
                IdentityClient::new(self.channel.clone()).probe(self.request(ProbeRequest {})).await
            });
            let problem = match asked.await {
                Ok(answer) if answer.ready.unwrap_or(true) => return Ok(()),
                Ok(_) => "it says that it is not ready yet".to_owned(),
                Err(trouble) => {
                    let code = trouble.status.code();
                    if trouble.kind() != Kind::UnderWay && code != Code::FailedPrecondition {
                        return Err(trouble.failure(false));
                    }
                    format!("it answers Probe with {}: {}", name(code), trouble.status.message())
                }
            };
            if Instant::now() + pause > until {
                return Err(Failure::retry(nobody(parameters, &problem)));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 3 / 2).min(Duration::from_secs(1));
        }
    }

    async fn learn(&mut self) -> Result<(), Trouble> {
        let identity = || IdentityClient::new(self.channel.clone());
        let info = self.call("GetPluginInfo", "", async {
            identity().get_plugin_info(self.request(GetPluginInfoRequest {})).await
        });
        let name = info.await?.name;
        let plugin = self.call("GetPluginCapabilities", "", async {
            identity().get_plugin_capabilities(self.request(GetPluginCapabilitiesRequest {})).await
        });
        let (mut services, mut expands) = (BTreeSet::new(), false);
        for capability in plugin.await?.capabilities {
            match capability.r#type {
                Some(plugin_capability::Type::Service(service)) => {
                    services.insert(service.r#type);
                }
                Some(plugin_capability::Type::VolumeExpansion(_)) => expands = true,
                None => {}
            }
        }
        let mut calls = BTreeSet::new();
        if services.contains(&(service::Type::ControllerService as i32)) {
            let asked = self.call("ControllerGetCapabilities", "", async {
                self.controller().controller_get_capabilities(self.request(ControllerGetCapabilitiesRequest {})).await
            });
            for capability in asked.await?.capabilities {
                if let Some(controller_service_capability::Type::Rpc(rpc)) = capability.r#type {
                    calls.insert(rpc.r#type);
                }
            }
        }
        (self.name, self.services, self.expands, self.calls) = (name, services, expands, calls);
        Ok(())
    }

    /// Returns the client of the driver's controller service.
    pub fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel.clone()).max_decoding_message_size(LARGEST)
    }

    /// Makes a request with the time limit of a call.
    pub fn request<T>(&self, message: T) -> Request<T> {
        self.request_within(Some(self.call), message)
    }

    /// Makes a request with a time limit, or without one.
    pub fn request_within<T>(&self, limit: Option<Duration>, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(limit) = limit {
            request.set_timeout(limit);
        }
        request
    }

    /// Makes a call about an object, whose name is logged. Parameters and Secrets are never logged.
    ///
    /// # Errors
    /// If the driver fails, or does not answer in time.
    pub async fn call<T>(
        &self,
        call: &'static str,
        about: &str,
        asked: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Trouble> {
        self.call_within(Some(self.call), call, about, asked).await
    }

    /// Makes a call with a time limit, or one that may take until the run is stopped.
    ///
    /// # Errors
    /// Those of [`Driver::call`].
    pub async fn call_within<T>(
        &self,
        limit: Option<Duration>,
        call: &'static str,
        about: &str,
        asked: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Trouble> {
        self.doing.replace(call);
        let began = Instant::now();
        let answer = match limit {
            None => asked.await,
            Some(limit) => tokio::time::timeout(limit, asked)
                .await
                .unwrap_or_else(|_| Err(Status::deadline_exceeded(format!("no answer within {} s", limit.as_secs())))),
        };
        let answer = answer.map_err(lost);
        let said = answer.as_ref().map_or_else(|status| name(status.code()), |_| "OK");
        eprintln!("{call} {about}: {said} after {} ms", began.elapsed().as_millis());
        answer.map(Response::into_inner).map_err(|status| Trouble { call, status })
    }

    /// Returns the time limit of a call.
    pub fn limit(&self) -> Duration {
        self.call
    }

    /// Returns the name of the last call.
    pub fn doing(&self) -> &'static str {
        *self.doing.borrow()
    }

    /// Checks whether the driver has a capability.
    pub fn can(&self, what: rpc::Type) -> bool {
        self.calls.contains(&(what as i32))
    }

    /// Requires a capability of the driver.
    ///
    /// # Errors
    /// If the driver does not have it.
    pub fn must(&self, what: rpc::Type, texts: &str) -> Result<(), Failure> {
        match self.can(what) {
            true => Ok(()),
            false => Err(Failure::config(format!(
                "the CSI driver {} cannot {texts}: it does not report {}",
                self.name,
                what.as_str_name()
            ))),
        }
    }

    /// Checks whether some nodes do not reach some of its volumes.
    pub fn has_topology(&self) -> bool {
        self.services.contains(&(service::Type::VolumeAccessibilityConstraints as i32))
    }

    /// Checks whether volumes can be expanded, even if only by their nodes.
    pub fn expands(&self) -> bool {
        self.expands
    }
}
