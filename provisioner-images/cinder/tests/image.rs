//! Tests of the image with a real Cinder: the objects that each run makes there, its termination message and its exit
//! code. One Cinder serves all tests. Each test has a project of its own, whose volumes it counts.

#[path = "image/copies.rs"]
mod copies;
#[path = "image/keystone.rs"]
mod keystone;
#[path = "image/killed.rs"]
mod killed;
#[path = "image/others.rs"]
mod others;
#[path = "image/provision.rs"]
mod provision;
#[path = "image/run.rs"]
mod run;
#[path = "image/tls.rs"]
mod tls;
#[path = "image/trouble.rs"]
mod trouble;
