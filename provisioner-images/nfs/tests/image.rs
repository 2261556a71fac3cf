//! The image against a real NFS server: what each run leaves on it, says and exits with. What stands
//! on the server is seen through another client (libnfs) as well as on its disk.

#[path = "image/batch.rs"]
mod batch;
#[path = "image/capacity.rs"]
mod capacity;
#[path = "image/delete.rs"]
mod delete;
#[path = "image/expand.rs"]
mod expand;
#[path = "image/killed.rs"]
mod killed;
#[path = "image/list.rs"]
mod list;
#[path = "image/provision.rs"]
mod provision;
#[path = "image/refusal.rs"]
mod refusal;
#[path = "image/run.rs"]
mod run;
