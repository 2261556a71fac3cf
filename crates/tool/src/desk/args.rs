//! The flags that say which program runs, and for which claim.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use flex_desk::desk::{Program, Tools};
use flex_desk::on_node::{OnNode, check, host_paths};
use flex_desk::order::{Content, Order};
use flex_desk::setting::{Inputs, Setting};
use flex_provisioner::flags::{Names, Namespaces};

use crate::files::read;
use crate::flags::identity;
use crate::out::remark;

/// The program, and the config and claim of its runs.
#[derive(Clone, Debug, Args)]
pub(crate) struct Subject {
    /// The file with the provisioner ConfigMap, and perhaps StorageClass, claim and Secrets. Its `script` runs, or the program that stands in for its image.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// The file with the claim [default: one that the class serves].
    #[arg(long, value_name = "FILE")]
    claim: Option<PathBuf>,
    /// The class, where the file has several configs.
    #[arg(long)]
    class: Option<String>,
    /// A key of the config or a parameter, as KEY=VALUE. It wins over the file.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = pair)]
    changes: Vec<(String, String)>,
    /// A directory of the node that the runs mount at the same path, as if the config had it in `pod-template`.
    #[arg(long, value_name = "PATH")]
    storage: Vec<String>,
    /// A directory with programs for the runs, before those of PATH.
    #[arg(long, value_name = "DIRECTORY")]
    path: Vec<PathBuf>,
    /// A directory of this machine in place of a path of the node that the config mounts, as PATH=DIRECTORY. The runs change it, and have the rights on this machine that the config asks for.
    #[arg(long, value_name = "PATH=DIRECTORY", value_parser = OnNode::parse, conflicts_with = "unconfined")]
    on_node: Vec<OnNode>,
    /// Run the program on the real file system, without the mounts of the pod. It can change and remove your files.
    #[arg(long)]
    unconfined: bool,
    #[command(flatten)]
    pub(super) names: Names,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE, such as capabilities=clone".into()),
    }
}

impl Subject {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn inputs(&self) -> anyhow::Result<Inputs> {
        let text = |path: &Option<PathBuf>| path.as_deref().map(read).transpose();
        Ok(Inputs {
            config: text(&self.config)?,
            claim: text(&self.claim)?,
            class: self.class.clone(),
            changes: self.changes.clone(),
            storage: self.storage.clone(),
            ..Inputs::default()
        })
    }

    /// Reads the files, and returns the setting of all runs with the program.
    ///
    /// # Errors
    /// A file cannot be read, the config is refused, or nothing says what to run.
    pub(super) fn read(&self, program: &[String]) -> anyhow::Result<(Setting, Tools)> {
        if program.is_empty() && self.config.is_none() {
            bail!("nothing says what to run: name a program, or a config with a script (--config)");
        }
        let inputs = self.inputs()?;
        let namespaces = Namespaces { namespace: "flex-provisioner".into(), config_namespaces: Vec::new() };
        let setting = Setting::read(&identity(&self.names, &namespaces), inputs)?;
        if setting.recipe.script.is_some() && !program.is_empty() {
            bail!("the config has a script, which is the program: leave out {}", program[0]);
        }
        let mut path = Vec::new();
        for folder in &self.path {
            let absolute = folder.canonicalize();
            path.push(absolute.with_context(|| format!("--path {} cannot be read", folder.display()))?);
        }
        let program = named(program)?;
        let on_node = self.on_node(&setting)?;
        if self.unconfined {
            remark!("warning: --unconfined: the program runs on the real file system, and can change your files");
        }
        Ok((setting, Tools { program, path, helper: None, unconfined: self.unconfined, on_node }))
    }
}

impl Subject {
    /// Returns the directories of this machine in place of paths of the node, with absolute paths.
    fn on_node(&self, setting: &Setting) -> anyhow::Result<Vec<OnNode>> {
        if self.on_node.is_empty() {
            return Ok(Vec::new());
        }
        let order = Order::Provision { claim: setting.claim.clone(), content: Content::Empty };
        let job = setting.job(&order, 1, "").map_err(anyhow::Error::msg)?;
        check(&self.on_node, &host_paths(&job)).map_err(anyhow::Error::msg)?;
        let absolute = |one: &OnNode| {
            let flag = format!("--on-node {}={}", one.path, one.directory.display());
            Ok(OnNode { path: one.path.clone(), directory: directory(&one.directory, &flag)? })
        };
        self.on_node.iter().map(absolute).collect()
    }
}

/// Returns the absolute path of a directory that a flag names, and that must exist.
pub(super) fn directory(path: &Path, flag: &str) -> anyhow::Result<PathBuf> {
    let absolute = path.canonicalize();
    let absolute = absolute.with_context(|| {
        format!("{flag}: the directory {} cannot be read: make it, or name another one", path.display())
    })?;
    if !absolute.is_dir() {
        bail!("{flag}: {} is no directory: name the directory that it is in", path.display());
    }
    Ok(absolute)
}

/// Returns the program with its absolute path.
fn named(words: &[String]) -> anyhow::Result<Option<Program>> {
    let Some((first, rest)) = words.split_first() else { return Ok(None) };
    let path = Path::new(first).canonicalize();
    let path = path.with_context(|| format!("the program {first} cannot be read"))?;
    if !path.is_file() {
        bail!("{first} is no file");
    }
    let path = path.to_str().with_context(|| format!("the path of {first} is not UTF-8"))?;
    let words = std::iter::once(path.to_owned()).chain(rest.iter().cloned()).collect();
    Ok(Some(Program { words }))
}
