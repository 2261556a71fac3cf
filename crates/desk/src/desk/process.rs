//! The process of a run: its start, its deadline and its end.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::time::Duration;

use flex_contract::names;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::ended::{Ended, kept};
use super::error::DeskError;
use super::node::{Node, Source, is_root};
use super::programs::{programs, search_path};
use super::tools::{Isolation, Tools};
use crate::api::Api;
use crate::container::{Capabilities, Container};
use crate::sandbox::spec::{Bind, OUTER, Spec, Trouble};
use crate::sandbox::users::Users;

/// The user of a container that may have any.
const ANY_USER: u32 = 1_000_650_000;
/// The place of the kubeconfig in a container.
const KUBECONFIG: &str = "/run/flex-desk/kubeconfig";
/// The file with the names of users.
const PASSWD: &str = "/etc/passwd";
/// The directory with the devices of this machine.
const DEVICES: &str = "/dev";
/// The directory with the attributes of these devices.
const ATTRIBUTES: &str = "/sys";
/// The variable with the path of the last words, where a program cannot write to the usual path.
const TERMINATION_LOG: &str = "FLEX_TERMINATION_LOG";
/// The time between two looks for the first process of a container.
const LOOK: Duration = Duration::from_millis(1);

/// The event at which a run is killed.
pub type Killer<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The way in which a run is ended from outside.
#[derive(Default)]
pub enum Stop<'a> {
    /// Nobody ends the run before its deadline.
    #[default]
    Never,
    /// SIGKILL for all its processes, when the event happens.
    Kill(std::cell::RefCell<Option<Killer<'a>>>),
    /// SIGTERM after this time, and SIGKILL after the grace period of the pod.
    Terminate(Duration),
}

impl<'a> Stop<'a> {
    /// Kills the run when an event happens.
    pub fn kill(event: impl Future<Output = ()> + 'a) -> Self {
        Stop::Kill(std::cell::RefCell::new(Some(Box::pin(event))))
    }
}

/// The place of a run.
pub(super) struct Place<'a> {
    pub folder: &'a Path,
    pub node: &'a Node,
    pub tools: &'a Tools,
    pub api: &'a Api,
}

/// Returns what this process may try.
///
/// # Errors
/// If this machine has no containers, and the person did not ask for a run without one.
pub(super) fn isolation(tools: &Tools) -> Result<Isolation, DeskError> {
    match (tools.unconfined, cfg!(target_os = "linux"), is_root()) {
        (true, ..) => Ok(Isolation::None("--unconfined".into())),
        (false, false, _) => Err(unconfinable("only Linux has containers")),
        (false, true, true) => Ok(Isolation::Root),
        (false, true, false) => Ok(Isolation::UserNamespace),
    }
}

/// Returns the error of a machine that cannot keep a program apart from its own files.
pub(super) fn unconfinable(why: &str) -> DeskError {
    DeskError::Machine(format!(
        "this machine does not let the desk confine the program, so it was not run: {why}; run the command as root, or allow user namespaces; `--unconfined` runs the program on the real file system"
    ))
}

/// Runs a container. The inner error says why the program did not run.
///
/// # Errors
/// If files or processes of the desk itself fail.
pub(super) async fn run(
    place: &Place<'_>,
    container: &Container,
    isolation: &Isolation,
    stop: &Stop<'_>,
) -> io::Result<Result<Ended, (Trouble, String)>> {
    fs::create_dir_all(place.folder.join("root"))?;
    let files = Files::new(place.folder)?;
    let spec = match prepared(place, container, isolation, &files) {
        Ok(spec) => spec,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Err((Trouble::Start, error.to_string()))),
        Err(error) => return Err(error),
    };
    let began = Instant::now();
    let mut child = match started(place, &spec, isolation, &files) {
        Ok(child) => child,
        Err(error) if matches!(isolation, Isolation::None(_)) => {
            return Ok(Err((Trouble::Start, format!("{}: {error}", spec.command.join(" ")))));
        }
        Err(error) => return Err(error),
    };
    let end = ended(&mut child, &spec, isolation, container, stop).await?;
    let took = began.elapsed();
    if let Some(trouble) = spec.trouble().filter(|_| !end.killed) {
        return Ok(Err(trouble));
    }
    let message = fs::read(&files.message)?;
    Ok(Ok(Ended {
        code: end.code,
        log: String::from_utf8_lossy(&fs::read(&files.log)?).into_owned(),
        message: kept(&message),
        message_bytes: message.len(),
        timed_out: end.timed_out,
        killed: end.killed,
        not_started: None,
        took,
        stopped_after: end.stopped_after,
        message_from_log: container.message_from_log,
        attempts: 1,
    }))
}

/// The files of a run on this machine.
struct Files {
    log: PathBuf,
    message: PathBuf,
}

impl Files {
    fn new(folder: &Path) -> io::Result<Self> {
        let files = Files { log: folder.join("log"), message: folder.join("termination-log") };
        fs::write(&files.log, "")?;
        fs::write(&files.message, "")?;
        // A program may open its own output again.
        fs::set_permissions(&files.log, fs::Permissions::from_mode(0o666))?;
        fs::set_permissions(&files.message, fs::Permissions::from_mode(0o666))?;
        Ok(files)
    }
}

/// Writes the files of the pod, and describes the process.
fn prepared(place: &Place<'_>, container: &Container, isolation: &Isolation, files: &Files) -> io::Result<Spec> {
    let user = container.user.unwrap_or(ANY_USER);
    let is_contained = !matches!(isolation, Isolation::None(_));
    let users = users(place.tools, isolation, user);
    let mut binds = Vec::new();
    for (number, mount) in container.mounts.iter().enumerate().filter(|_| is_contained) {
        let source = place.node.source(mount, &place.folder.join(format!("mount-{number}")), &users, user)?;
        let (source, within) = match source {
            Source::Directory(root, within) => (Some(root), within),
            Source::Memory => (None, PathBuf::new()),
        };
        binds.push(Bind { target: mount.path.clone().into(), source, within, read_only: mount.read_only });
    }
    binds.extend(attributes_of_devices(&binds, &container.capabilities));
    let kubeconfig = place.folder.join("kubeconfig");
    fs::write(&kubeconfig, place.api.kubeconfig())?;
    fs::set_permissions(&kubeconfig, fs::Permissions::from_mode(0o444))?;
    let mut env = container.env.clone();
    let first: Vec<PathBuf> = container.programs.iter().chain(&place.tools.path).cloned().collect();
    let path = search_path(&first, is_contained);
    env.entry("PATH".into()).or_insert(path);
    if is_contained {
        binds.push(Bind::of(names::TERMINATION_LOG, &files.message, false));
        binds.push(Bind::of(KUBECONFIG, kubeconfig, true));
        // The images that run scripts give this user a name, which programs such as `ssh` need.
        if container.mounts.iter().any(|mount| mount.path == names::SCRIPT_DIR) {
            let passwd = place.folder.join("passwd");
            fs::write(&passwd, passwd_of_image(&fs::read_to_string(PASSWD).unwrap_or_default(), user))?;
            fs::set_permissions(&passwd, fs::Permissions::from_mode(0o444))?;
            binds.push(Bind::of(PASSWD, passwd, true));
        }
        binds.extend(programs(&first, place.tools));
        env.insert("KUBECONFIG".into(), KUBECONFIG.into());
    } else {
        env.insert("KUBECONFIG".into(), kubeconfig.display().to_string());
        env.insert(TERMINATION_LOG.into(), files.message.display().to_string());
    }
    place.node.note_mount_points(&binds);
    let spec = Spec {
        command: container.command.clone(),
        env,
        binds,
        user,
        capabilities: match &container.capabilities {
            Capabilities::All => None,
            Capabilities::Only(names) => Some(names.clone()),
        },
        may_escalate: container.may_escalate,
        read_only_root: container.read_only_root,
        own_users: *isolation == Isolation::UserNamespace,
        users,
        on_node: place.tools.on_node.iter().map(|one| one.directory.clone()).collect(),
        folder: place.folder.to_path_buf(),
    };
    spec.write()?;
    Ok(spec)
}

/// Returns the mount of `/sys` for a privileged container to which a person gave the devices of this machine. A runtime lets
/// each privileged container write there. Without the devices, `/sys` stays read-only as the rest of this machine. A mount
/// at `/sys` or below it is the choice of the config or of a person, and stays as it is.
fn attributes_of_devices(binds: &[Bind], capabilities: &Capabilities) -> Option<Bind> {
    let is_all = |bind: &Bind| bind.source.as_deref() == Some(Path::new(DEVICES)) && bind.within.as_os_str().is_empty();
    let is_devices = |bind: &Bind| !bind.read_only && is_all(bind);
    let is_chosen = binds.iter().any(|bind| bind.target.starts_with(ATTRIBUTES));
    let is_given = *capabilities == Capabilities::All && !is_chosen && binds.iter().any(is_devices);
    is_given.then(|| Bind::of(ATTRIBUTES, ATTRIBUTES, false))
}

/// Returns the users of a run. Only a run to which a person gave a directory of this machine has those of this machine.
fn users(tools: &Tools, isolation: &Isolation, user: u32) -> Users {
    match isolation {
        _ if !tools.on_node.is_empty() => Users::OfMachine,
        Isolation::None(_) => Users::OfMachine,
        Isolation::UserNamespace => Users::only(user, user),
        Isolation::Root => Users::of_root(user, &fs::read_to_string("/proc/self/uid_map").unwrap_or_default()),
    }
}

/// Returns the users of this machine, with the user of the run.
fn passwd_of_image(of_machine: &str, user: u32) -> String {
    let has_user = of_machine.lines().any(|line| line.split(':').nth(2) == Some(&user.to_string()));
    let own = format!("nonroot:x:{user}:{user}:nonroot:/:/bin/sh\n");
    match has_user {
        true => of_machine.to_owned(),
        false => format!("{}\n{own}", of_machine.trim_end()),
    }
}

fn started(place: &Place<'_>, spec: &Spec, isolation: &Isolation, files: &Files) -> io::Result<Child> {
    let log = fs::OpenOptions::new().append(true).open(&files.log)?;
    let mut command = match isolation {
        Isolation::None(_) => {
            let mut words = spec.command.iter();
            let mut command = Command::new(words.next().map_or("", String::as_str));
            command.args(words).env_clear().envs(&spec.env).process_group(0);
            if is_root() {
                if spec.user == 0 {
                    return Err(io::Error::other("the desk runs nothing as root without mounts of its own"));
                }
                command.uid(spec.user).gid(spec.user);
            }
            command
        }
        Isolation::Root | Isolation::UserNamespace => {
            let helper = place.tools.helper.clone().unwrap_or_else(|| "/proc/self/exe".into());
            let mut command = Command::new(helper);
            command.arg0(OUTER).arg(spec.folder.join("spec"));
            command
        }
    };
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true).spawn()
}

/// The end of a process.
struct End {
    code: i32,
    timed_out: bool,
    killed: bool,
    stopped_after: Option<Duration>,
}

async fn ended(
    child: &mut Child,
    spec: &Spec,
    isolation: &Isolation,
    container: &Container,
    stop: &Stop<'_>,
) -> io::Result<End> {
    let limit = container.limit.unwrap_or(Duration::from_secs(300));
    let (term_at, killer) = match stop {
        Stop::Never => (limit, None),
        Stop::Kill(event) => (limit, event.borrow_mut().take()),
        Stop::Terminate(after) => (*after, None),
    };
    let killer = killer.unwrap_or_else(|| Box::pin(std::future::pending()));
    let code = |status: std::process::ExitStatus| {
        status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
    };
    tokio::select! {
        status = child.wait() => {
            return Ok(End { code: code(status?), timed_out: false, killed: false, stopped_after: None });
        }
        () = killer => {
            signal(child, spec, isolation, Sig::Kill).await;
            let status = child.wait().await?;
            return Ok(End { code: code(status), timed_out: false, killed: true, stopped_after: None });
        }
        () = sleep(term_at) => {}
    }
    let asked = Instant::now();
    signal(child, spec, isolation, Sig::Term).await;
    let status = match timeout(container.grace, child.wait()).await {
        Ok(status) => status?,
        Err(_) => {
            signal(child, spec, isolation, Sig::Kill).await;
            child.wait().await?
        }
    };
    let timed_out = matches!(stop, Stop::Never);
    Ok(End { code: code(status), timed_out, killed: false, stopped_after: Some(asked.elapsed()) })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sig {
    Term,
    Kill,
}

/// Sends a signal: SIGTERM to the first process of the container, as the kubelet does, SIGKILL to all.
#[cfg(target_os = "linux")]
async fn signal(child: &mut Child, spec: &Spec, isolation: &Isolation, sig: Sig) {
    use rustix::process::{Pid, Signal, kill_process, kill_process_group};
    let signal = if sig == Sig::Term { Signal::TERM } else { Signal::KILL };
    let own = || child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if matches!(isolation, Isolation::None(_)) {
        let _ = own().map(|pid| kill_process_group(pid, signal));
        return;
    }
    // The first process of a container takes all others with it.
    loop {
        let pid = fs::read_to_string(spec.pid_file()).ok().and_then(|text| text.parse().ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, signal);
            return;
        }
        if child.try_wait().ok().flatten().is_some() {
            return;
        }
        sleep(LOOK).await;
    }
}

#[cfg(not(target_os = "linux"))]
async fn signal(child: &mut Child, _: &Spec, _: &Isolation, _: Sig) {
    let _ = child.start_kill();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_a_script_has_a_name() {
        let of_machine = "root:x:0:0:root:/root:/bin/bash\n";
        assert_eq!(passwd_of_image(of_machine, 0), of_machine);
        let with_user = passwd_of_image(of_machine, 65532);
        assert_eq!(with_user, format!("{of_machine}nonroot:x:65532:65532:nonroot:/:/bin/sh\n"));
        assert_eq!(passwd_of_image(&with_user, 65532), with_user);
    }

    #[test]
    fn only_a_directory_of_this_machine_gives_a_run_the_users_of_this_machine() {
        let given = Tools {
            on_node: vec![crate::on_node::OnNode { path: "/a".into(), directory: "/b".into() }],
            ..Tools::default()
        };
        for user in [0, 65532] {
            assert_eq!(users(&given, &Isolation::Root, user), Users::OfMachine);
            for isolation in [Isolation::Root, Isolation::UserNamespace] {
                assert_ne!(users(&Tools::default(), &isolation, user), Users::OfMachine, "{isolation:?}");
            }
        }
    }

    #[test]
    fn attributes_of_devices_are_writable_only_with_the_devices_and_all_rights() {
        let bind = |source: Option<&str>, read_only| Bind {
            target: "/dev".into(),
            source: source.map(PathBuf::from),
            within: PathBuf::new(),
            read_only,
        };
        let devices = || bind(Some("/dev"), false);
        let at = |target: &str, read_only| Bind { target: target.into(), ..bind(Some("/sys"), read_only) };
        let some = Capabilities::Only(vec!["SYS_ADMIN".into()]);
        for (what, binds, capabilities, expected) in [
            ("devices", vec![devices()], &Capabilities::All, true),
            ("not privileged", vec![devices()], &some, false),
            ("devices to read", vec![bind(Some("/dev"), true)], &Capabilities::All, false),
            ("a directory of the desk", vec![bind(Some("/tmp/desk/dev"), false)], &Capabilities::All, false),
            ("memory", vec![bind(None, false)], &Capabilities::All, false),
            ("nothing", vec![], &Capabilities::All, false),
            ("attributes to read", vec![devices(), at("/sys", true)], &Capabilities::All, false),
            ("attributes that somebody chose", vec![at("/sys", false), devices()], &Capabilities::All, false),
            ("a part of the attributes", vec![devices(), at("/sys/fs/cgroup", true)], &Capabilities::All, false),
            ("another directory of the machine", vec![devices(), at("/system", true)], &Capabilities::All, true),
        ] {
            let found = attributes_of_devices(&binds, capabilities);
            assert_eq!(found, expected.then(|| Bind::of("/sys", "/sys", false)), "{what}");
        }
    }
}
