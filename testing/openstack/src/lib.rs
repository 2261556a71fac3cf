//! A real Cinder and a real Keystone for tests, from PyPI (`setup.sh` installs them once).
//!
//! [`Cinder`] is API, scheduler and volume services in one process, with backends of our own that keep sparse files and say of
//! their connections what Cinder's own code says (`lab/`). [`Keystone`] is what it is everywhere. [`Proxy`] stands before a
//! Cinder, sees all calls, and can break them off. [`Tls`] stands before one of them with a certificate of an [`Authority`].
//!
//! Servers end with the process that started them, also if it is killed, and their directories go with it ([`Refuge`]).

mod cinder;
mod exchange;
mod keystone;
mod process;
mod proxy;
mod refuge;
mod tls;

pub use cinder::{Cinder, Options, Project};
pub use exchange::{Reply, ask};
pub use keystone::Keystone;
pub use proxy::{Call, Proxy};
pub use refuge::Refuge;
pub use tls::{Authority, Tls};
