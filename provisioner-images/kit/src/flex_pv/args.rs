//! The command line, as it was typed.

use std::ffi::OsString;
use std::path::{Component, PathBuf};

use clap::builder::{FalseyValueParser, PathBufValueParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

/// Creates the PersistentVolume of a provisioner image, and reports failures.
///
/// Name, claim, class, size, modes and the rest come from the environment that the flex provisioner gives to the pod.
#[derive(Debug, Parser)]
#[command(name = "flex-pv", version)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommand, with its arguments.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create the PersistentVolume: the last act of a successful run, and harmless when repeated.
    Create(Box<Create>),
    /// Print the volumes of the backend: the last act of a `list` run.
    ///
    /// Reads lines `volume ID [BYTES|- [PLACE]]` from standard input. `kept` in place of `volume` is for storage that
    /// outlives its volume, `rubbish` for storage that an unfinished deletion left. The last line must be `end`.
    List,
    /// Report the free bytes of the backend: the last act of a `capacity` run.
    Capacity {
        /// The bytes that are free for volumes, or a quantity such as 10Gi.
        #[arg(long, value_name = "SIZE", value_parser = size)]
        bytes: u64,
        /// The size of the largest possible volume, where it is less.
        #[arg(long, value_name = "SIZE", value_parser = size)]
        maximum_volume_size: Option<u64>,
    },
    /// Copy a directory with all its contents, for a run that copies a volume.
    ///
    /// The source may be in use: no link in it is followed.
    Copy {
        /// The directory to copy.
        #[arg(value_parser = straight())]
        from: PathBuf,
        /// The place of the copy. Nothing may exist there, except for a directory of STORAGE_MOUNTS, which is filled.
        #[arg(value_parser = straight())]
        to: PathBuf,
    },
    /// Remove files and directories with all their contents; a missing one is a success.
    ///
    /// Another process may still hold them open. No link in them is followed, even if somebody exchanges directories
    /// during the removal, and mounted file systems are not entered. A directory of STORAGE_MOUNTS is emptied, and
    /// marked as unused.
    Remove {
        /// The paths to remove. The parent directory of each must exist.
        #[arg(required = true, value_parser = straight())]
        path: Vec<PathBuf>,
    },
    /// Rename a file or directory. A link is renamed itself, and nothing at the new place is touched.
    Rename {
        /// The present name.
        #[arg(value_parser = straight())]
        from: PathBuf,
        /// The new name, on the same file system. Nothing may exist there.
        #[arg(value_parser = straight())]
        to: PathBuf,
    },
    /// Refuse parameters that the image does not read; the beginning of each run of a script.
    ///
    /// A provision run that has another parameter than NAME… ends with exit code 78, and says which. Runs for volumes that
    /// exist only note the name in their log.
    Parameters {
        /// The names of the parameters that the image reads.
        name: Vec<String>,
    },
    /// Refuse an id that is no UUID, and a run without its id; before a script makes an id a part of a path.
    ///
    /// A person may have written `SNAPSHOT_ID`, with `/../` in it. A delete run checks only `CLAIM_UUID`, so that a claim
    /// that was refused for its snapshot can be deleted.
    Ids,
    /// Work on the records of directories that have names by a pattern.
    #[command(subcommand)]
    Path(PathCommand),
    /// Keep directories that contain one directory for each volume, where each run sees only its own.
    ///
    /// Other users of the node cannot enter them, and empty unused directories are removed after a while.
    Keep {
        /// The time between two rounds, without end; one round unless given.
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
        every: Option<u32>,
        /// The time for which an empty directory must be unused before it is removed.
        #[arg(long, value_name = "SECONDS", default_value_t = 10)]
        age: u32,
        /// The directories to keep.
        #[arg(required = true)]
        path: Vec<PathBuf>,
    },
    /// Run an image's program for each claim of a batch; for a single claim, become the program.
    ///
    /// Each program has the environment of its own claim, and an outcome of its own: its exit code, and the message of
    /// `flex-pv fail` or the end of its output.
    Each {
        /// The number of programs that run at one time.
        #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
        jobs: u16,
        /// The time limit of one program; no limit unless given.
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
        timeout: Option<u32>,
        /// The program and its arguments.
        #[arg(required = true, last = true)]
        command: Vec<OsString>,
    },
    /// Run the shell program on standard input on another host, by ssh.
    ///
    /// The parameters `ssh-host`, `ssh-user` and `ssh-host-key` of the config name the host. The program ends with its own
    /// exit code and last words, for which it has the functions `fail KIND MESSAGE` and `try COMMAND`.
    OnHost {
        /// The file with the private key; `ssh-privatekey` of the Secret `storage-host` unless given.
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// The variables that the program gets, with the values that they have here.
        #[arg(value_name = "VARIABLE")]
        variable: Vec<String>,
    },
    /// Leave a message for the owner of the claim, and exit with the code that says what follows.
    Fail {
        /// The reaction of the flex provisioner.
        kind: Kind,
        /// The message: what happened, where, and what to do about it.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        message: Vec<String>,
    },
}

/// The subcommand of `path`, with its arguments. The records are in the directory BASE.
#[derive(Debug, Subcommand)]
pub enum PathCommand {
    /// Print the path of this run's volume below BASE: the recorded one, or a new one by the pattern, which is recorded.
    ///
    /// Makes the folders around it.
    Take {
        /// The directory of all volumes.
        base: PathBuf,
        /// The pattern, such as `${pvc.namespace}/${pvc.name}`.
        pattern: String,
    },
    /// Remove the record of a volume whose directory is gone, and empty folders around it.
    Free {
        /// The directory of all volumes.
        base: PathBuf,
        /// The id of the volume.
        id: String,
    },
    /// Check that a directory which is to move in has nothing in common with that of another volume.
    Check {
        /// The directory of all volumes.
        base: PathBuf,
        /// The id of the volume that moves in.
        id: String,
        /// The path below BASE.
        path: String,
    },
    /// Print a line for `flex-pv list` for each volume that has a record.
    List {
        /// The directory of all volumes.
        base: PathBuf,
    },
}

fn size(text: &str) -> Result<u64, String> {
    flex_contract::quantity::bytes(text).map_err(|error| error.to_string())
}

/// Reads a path without `..`. A part of the path may be an id that a person wrote, such as the handle of a snapshot, and
/// would lead to the storage of another.
fn straight() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.components().any(|part| part == Component::ParentDir) {
        true => Err("the path contains `..`, and may lead to the storage of another: refuse an id that is no UUID"),
        false => Ok(path),
    })
}

/// The reaction of the flex provisioner to a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Never for this request: the same call would fail again (exit code 65).
    Never,
    /// No room on this node or in this zone; another node may have room (exit code 69).
    NoRoom,
    /// Try again later (exit code 75).
    Retry,
    /// The config cannot work: try again when it has changed (exit code 78).
    Config,
}

/// The arguments of `create`, which describe the volume.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("source").required(true).multiple(false))]
pub struct Create {
    /// A directory on an NFS server; write an IPv6 address in brackets.
    #[arg(long, group = "source", value_name = "SERVER:/PATH")]
    pub nfs: Option<String>,
    /// A directory on this node, as a hostPath volume.
    #[arg(long, group = "source", value_name = "PATH")]
    pub host_path: Option<String>,
    /// A directory or block device on this node, as a local volume.
    #[arg(long, group = "source", value_name = "PATH")]
    pub local: Option<String>,
    /// An iSCSI LUN.
    #[arg(long, group = "source", value_name = "PORTAL,IQN,LUN")]
    pub iscsi: Option<String>,
    /// A volume of a CSI driver, by its handle.
    #[arg(long, group = "source", value_name = "DRIVER,HANDLE")]
    pub csi: Option<String>,
    /// Any other source: a file with a PersistentVolume or only its spec; `-` reads standard input. Its source, node
    /// affinity, capacity and annotations are used.
    #[arg(long, group = "source", value_name = "FILE")]
    pub from: Option<String>,

    /// The real size, in bytes or as a quantity such as 10Gi, where it is larger than the requested size.
    #[arg(long)]
    pub size: Option<String>,
    /// The file system on the volume, for local, iscsi and csi; for the latter two the default is FS_TYPE.
    #[arg(long)]
    pub fs_type: Option<String>,
    /// The volume can only be read, for nfs, iscsi and csi.
    #[arg(long)]
    pub read_only: bool,
    /// Only the node of this pod reaches the volume. True for local and hostPath unless the file of --from says
    /// otherwise.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub on_this_node: Option<bool>,
    /// Only nodes with this label reach the volume; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub affinity: Vec<String>,
    /// An annotation of the PersistentVolume, such as data for a later delete run; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub annotation: Vec<String>,

    /// The volume has the content of the data source that CLONE_OF or SNAPSHOT_ID names. Without this option such a
    /// volume is refused, because it would be empty.
    #[arg(long)]
    pub copied: bool,

    /// Print the PersistentVolume as YAML and create nothing; needs no cluster.
    #[arg(long, env = "FLEX_PV_DRY_RUN", value_parser = FalseyValueParser::new())]
    pub dry_run: bool,
    /// The time for which transient errors of the API are retried, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub timeout: u64,
}
