//! Provisioner configs: the data that an admin writes, its check, and the classes that each config serves.
//!
//! - [`keys`] and [`capability`] list what an admin may write, with its documentation.
//! - [`check`] turns a ConfigMap's data, overridden by the StorageClass's parameters, into a [`Recipe`]. A run needs
//!   nothing else.
//! - [`classes`] decides which config serves which class, from their [`input`]. A [`class`] is its result.
//! - [`external_provisioner`] knows the external provisioners of others that would serve the same class.
//! - [`common_mistakes`] and [`labels`] find values that are valid, but probably mistakes, by their [`spelling`].
//! - [`effective_config`] is the form in which a recipe is stored, in revisions and on volumes. [`checked`] turns it into a recipe
//!   again.
//! - [`explain`] says where each value of a class comes from.
//! - [`current_program`] replaces the program of a stored recipe by that of its class.
//! - [`namespaces`] says whose claims a class serves.
//! - [`script`] is the shell program of a config that needs no image of its own.
//! - `own_verdict` checks a ConfigMap by itself.
//! - [`modify`] has the VolumeAttributesClasses, whose parameters a modify run gives a volume.
//! - [`document`] reads the files that `validate` and `render` get. [`file_names`] has the rules for the files of their pods.

pub mod accounts;
pub mod check;
pub mod checked;
pub mod class;
pub mod classes;
pub mod common_mistakes;
pub mod current_program;
pub mod document;
pub mod effective_config;
pub mod explain;
pub mod external_provisioner;
pub mod file_names;
pub mod former_deployment;
pub mod identity;
mod incumbent;
pub mod input;
pub mod keys;
pub mod labels;
pub mod modify;
mod named_config;
pub mod namespaces;
mod own_verdict;
pub mod pool;
mod problem;
mod recipe;
pub mod script;
mod settings;
pub mod spelling;
pub mod topology;
pub mod values;

pub use flex_contract::capability;
pub use problem::{Problem, joined};
pub use recipe::Recipe;
pub use settings::{Backoff, NodeGone, Placement, Quota, Refresh, RunAsUser, SourceRule};
