//! The flags of `status`, and the forms of its output.

use clap::{Args, ValueEnum};
use clap_complete::ArgValueCompleter;
use flex_provisioner::overview::Overview;
use flex_provisioner::overview::collect::Scope;

use super::surroundings::Shown;
use super::text::Drawing;
use super::{class_text, json, text};
use crate::cluster::Cluster;
use crate::complete::candidates::classes;
use crate::flags::indented;
use crate::forward::StatusPort;
use crate::left::is_gone;
use crate::namespaces::UserNamespaces;
use crate::out::{colours, width};

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The class to show, with its settings and limits [default: all classes].
    #[arg(add = ArgValueCompleter::new(classes))]
    pub(super) class: Option<String>,
    #[command(flatten)]
    pub(super) namespaces: UserNamespaces,
    #[command(flatten)]
    pub(super) cluster: Cluster,
    /// Show the state again and again, until the command is ended.
    ///
    /// The command asks the orchestrator that leads, through a forwarded port. Users who may not forward ports get the
    /// same from watches, which cost the API server more. With CLASS, your user must in any case be able to list
    /// StorageClasses, the configs, and the ControllerRevisions of the orchestrator's namespace.
    #[arg(short, long)]
    pub(super) watch: bool,
    #[command(flatten)]
    pub(super) status_port: StatusPort,
    /// The form of the output.
    #[arg(short = 'o', long = "output", value_enum, default_value = "table", value_name = "OUTPUT")]
    pub(super) form: Form,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// For people.
    Table,
    /// For people, with all columns.
    Wide,
    /// For scripts.
    Json,
    /// For scripts.
    Yaml,
    /// The names of the classes and of the claims that are not bound.
    Name,
}

impl Form {
    /// Checks whether a person reads this form.
    pub(super) fn is_for_people(self) -> bool {
        matches!(self, Form::Table | Form::Wide)
    }

    /// Returns the overview in this form.
    ///
    /// # Errors
    /// If YAML cannot hold it.
    pub(super) fn text(self, shown: Shown<'_>, drawing: Drawing) -> anyhow::Result<String> {
        Ok(match self {
            Form::Table | Form::Wide => match shown.overview.classes.as_slice() {
                [one] if shown.class.is_some() => class_text::text(shown, one, drawing),
                _ => text::text(shown, drawing),
            },
            Form::Json => indented(&json::document(shown)),
            Form::Yaml => flex_manifest::to_yaml(&json::document(shown)).map_err(anyhow::Error::msg)?,
            Form::Name => names(shown.overview),
        })
    }

    /// Returns what this form shows of the claims and volumes, with so many open claims at most.
    pub(super) fn scope(self, claims: usize) -> Scope {
        match self {
            Form::Table | Form::Wide | Form::Name => Scope::Open(claims),
            Form::Json | Form::Yaml => Scope::Whole,
        }
    }
}

/// Returns the names of the classes and of the claims that are not bound, each as kubectl accepts it.
fn names(overview: &Overview) -> String {
    let with_object = overview.classes.iter().filter(|class| class.has_object);
    let classes = with_object.map(|class| format!("storageclass.storage.k8s.io/{}", class.name));
    let open = overview.open_claims().into_iter().filter(|row| !is_gone(&row.claim));
    let open = open.map(|row| format!("persistentvolumeclaim/{}", row.claim));
    classes.chain(open).collect::<Vec<_>>().join("\n")
}

impl StatusArgs {
    /// Returns how the text is drawn, with so many claims at most.
    pub(super) fn drawing(&self, claims: Option<usize>) -> Drawing {
        let width = width().filter(|_| self.form == Form::Table);
        Drawing { coloured: colours(), wide: self.form == Form::Wide, width, claims }
    }

    /// Returns what is read of the claims and volumes, with so many open claims at most. The claims of one namespace
    /// are found among all.
    pub(super) fn scope(&self, claims: usize) -> Scope {
        self.form.scope(self.namespaces.shown().map_or(claims, |_| usize::MAX))
    }

    /// Checks whether the orchestrator can tell what is shown. Of a namespace that a flag names it may not tell all claims,
    /// and it tells no whole documents.
    pub(super) fn asks_orchestrator(&self) -> bool {
        self.form.is_for_people() && self.namespaces.chosen().is_none()
    }

    /// Leaves out the claims of other namespaces. Returns how many of them are not bound, if no flag has left them out.
    pub(super) fn limit(&self, overview: &mut Overview) -> usize {
        let is_shown = |claim: &str| self.namespaces.has(claim.split_once('/').unwrap_or_default().0);
        let open = overview.open_claims().len();
        overview.claims.retain(|row| is_shown(&row.claim));
        overview.kept.retain(|claim| is_shown(claim));
        self.namespaces.usual().map_or(0, |_| open - overview.open_claims().len())
    }
}
