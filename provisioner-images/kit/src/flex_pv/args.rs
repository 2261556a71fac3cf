//! The command line, as typed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

/// Creates the PersistentVolume of a provisioner image, and says why one was not made.
///
/// Name, claim, class, size, modes and the rest come from the environment that the flex provisioner
/// gives to the pod.
#[derive(Debug, Parser)]
#[command(name = "flex-pv", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create the PersistentVolume; the last act of a successful run, and harmless when repeated.
    Create(Box<Create>),
    /// Print what the backend has; the last act of a `list` run.
    ///
    /// Reads lines `volume ID [BYTES|- [PLACE]]` from standard input, or `kept` for storage that outlives its
    /// volume, or `rubbish` for what a deletion left; the last line must be `end`.
    List,
    /// Tell how much room the backend has; the last act of a `capacity` run.
    Capacity {
        /// The bytes that are free for volumes, or a quantity such as 10Gi.
        #[arg(long, value_name = "SIZE", value_parser = size)]
        bytes: u64,
        /// The size of the largest volume that can be made, where it is less.
        #[arg(long, value_name = "SIZE", value_parser = size)]
        maximum_volume_size: Option<u64>,
    },
    /// Copy a directory with all that is in it, for a run that is to make a copy of a volume.
    ///
    /// The original may be in use: no link in it leads anywhere.
    Copy {
        /// The original.
        from: PathBuf,
        /// Where the copy is made. Nothing may stand there, unless it is a directory of STORAGE_MOUNTS: that is filled.
        to: PathBuf,
    },
    /// Remove files and directories with all that is in them; what is not there is a success.
    ///
    /// Somebody may still hold them open: no link in them leads anywhere, however often things are exchanged meanwhile,
    /// and what is mounted there is not entered. A directory of STORAGE_MOUNTS is emptied, and left as one that is nobody's.
    Remove {
        /// What to remove. The directory that each of them stands in must be there.
        #[arg(required = true)]
        path: Vec<PathBuf>,
    },
    /// Rename a file or directory; a link is renamed itself, and what stands at the new place is not touched.
    Rename {
        /// Its name as it is.
        from: PathBuf,
        /// Its new name, on the same file system; nothing may stand there.
        to: PathBuf,
    },
    /// Keep the directories that hold one directory per volume, where runs see that of their own volume alone.
    ///
    /// Other users of the node do not get into them, and empty directories that are nobody's are removed after a while.
    Keep {
        /// How often, without end; once unless given.
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
        every: Option<u32>,
        /// How long an empty directory has been nobody's before it is removed.
        #[arg(long, value_name = "SECONDS", default_value_t = 10)]
        age: u32,
        /// The directories.
        #[arg(required = true)]
        path: Vec<PathBuf>,
    },
    /// Run an image's program for each claim of a batch; for a single claim, become the program.
    ///
    /// Each has the environment of its own claim, and an outcome of its own: its exit code, and what it left by `flex-pv
    /// fail` or as the end of its output.
    Each {
        /// How many run at one time.
        #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
        jobs: u16,
        /// How long one of them may take before it is stopped; without end unless given.
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
        timeout: Option<u32>,
        /// The program and its arguments.
        #[arg(required = true, last = true)]
        command: Vec<OsString>,
    },
    /// Leave a message for the owner of the claim, and exit with the code that says what comes next.
    Fail {
        /// What the flex provisioner shall do about it.
        kind: Kind,
        /// What happened, where, and what to do about it.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        message: Vec<String>,
    },
}

fn size(text: &str) -> Result<u64, String> {
    contract::quantity::bytes(text).map_err(|error| error.to_string())
}

/// What the flex provisioner shall do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Never for this request; the same call can only fail again (exit code 65).
    Never,
    /// No room on this node or in this zone; another one may do (exit code 69).
    NoRoom,
    /// Try again later (exit code 75).
    Retry,
    /// The config cannot work; try again when it has changed (exit code 78).
    Config,
}

/// The volume.
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
    /// Any other source: a file with a PersistentVolume or only its spec, of which source, node
    /// affinity, capacity and annotations are taken; `-` reads standard input.
    #[arg(long, group = "source", value_name = "FILE")]
    pub from: Option<String>,

    /// The real size, in bytes or as a quantity such as 10Gi, where it is larger than what was asked for.
    #[arg(long)]
    pub size: Option<String>,
    /// The file system on the volume, for local, iscsi and csi; for the latter two FS_TYPE otherwise.
    #[arg(long)]
    pub fs_type: Option<String>,
    /// The volume can only be read, for nfs, iscsi and csi.
    #[arg(long)]
    pub read_only: bool,
    /// The volume is reachable only from the node where this pod runs; true for local and hostPath
    /// unless the file of --from says otherwise.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub on_this_node: Option<bool>,
    /// The volume is reachable only from nodes with this label; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub affinity: Vec<String>,
    /// An annotation of the PersistentVolume, such as what a later delete needs; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub annotation: Vec<String>,

    /// The volume has the content of what it is to be a copy of, where CLONE_OF or SNAPSHOT_ID says so. Without this such
    /// a volume is refused, because it would be empty.
    #[arg(long)]
    pub copied: bool,

    /// Print the PersistentVolume as YAML and create nothing; needs no cluster.
    #[arg(long)]
    pub dry_run: bool,
    /// How many seconds transient errors of the API are retried.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub timeout: u64,
}
