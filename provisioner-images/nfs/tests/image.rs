//! Tests of the image with a real NFS server: the files that each run leaves, its termination message and its exit
//! code. The tests read the server's files through another client (libnfs) and on its disk.

#[path = "image/batch.rs"]
mod batch;
#[path = "image/capacity.rs"]
mod capacity;
#[path = "image/copies.rs"]
mod copies;
#[path = "image/delete.rs"]
mod delete;
#[path = "image/expand.rs"]
mod expand;
#[path = "image/exports.rs"]
mod exports;
#[path = "image/front.rs"]
mod front;
#[path = "image/killed.rs"]
mod killed;
#[path = "image/late.rs"]
mod late;
#[path = "image/list.rs"]
mod list;
#[path = "image/moving.rs"]
mod moving;
#[path = "image/provision.rs"]
mod provision;
#[path = "image/refusal.rs"]
mod refusal;
#[path = "image/run.rs"]
mod run;
