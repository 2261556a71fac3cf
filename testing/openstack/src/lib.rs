//! A real Cinder and a real Keystone for tests, from PyPI (`setup.sh` installs them once).
//!
//! [`Cinder`] is API, scheduler and volume services in one process. Its backends belong to this crate: they keep sparse
//! files, and describe their connections as Cinder's own code does (`lab/`). [`Keystone`] is the real program.
//! [`Proxy`] is a proxy before a Cinder that records all calls, and can interrupt them. [`Tls`] adds TLS to a server,
//! with a certificate of an [`Authority`].
//!
//! Servers end with the process that started them, even if it is killed, and their directories are removed with it
//! ([`Refuge`]). When a test fails, their logs are kept, and the test prints where.

mod cinder;
mod exchange;
mod kept_log;
mod keystone;
#[path = "../../ganesha/src/port.rs"]
mod port;
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
