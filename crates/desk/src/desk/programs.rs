//! The programs of this machine that a container gets beside those of the system. Only a person names them: neither the
//! `PATH` nor the words of a config bring anything into a container.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::tools::Tools;
use crate::sandbox::spec::{Bind, COVERED};

/// The directory of a container with the programs of the desk.
const PROGRAMS: &str = "/run/flex-desk/bin";
/// The file that says which server knows the names of hosts. On some machines it is a link to a directory of processes.
const RESOLVERS: &str = "/etc/resolv.conf";
/// Directories of the system. A container has its own, or those of this machine.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/etc", "/dev", "/proc", "/sys"];

/// Returns the mounts of all programs: the directories before `PATH`, `flex-pv`, what the person wants to run, and the
/// directories of the person's own `PATH`.
pub(super) fn programs(first: &[PathBuf], tools: &Tools) -> Vec<Bind> {
    let first = first.iter().map(|path| Bind::of(path, path, true));
    let flex_pv = flex_pv().map(|source| Bind::of(Path::new(PROGRAMS).join("flex-pv"), source, true));
    // Programs such as `flex-pv each` get another program as an argument.
    let words = tools.program.iter().flat_map(|program| &program.words).filter_map(|word| named(Path::new(word)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all: Vec<Bind> = first.chain(flex_pv).chain(words).chain(uncovered(&path)).collect();
    let mut places = BTreeSet::new();
    all.retain(|bind| places.insert(bind.target.clone()));
    all
}

/// Returns the `PATH` of a run whose config has none.
pub(super) fn search_path(first: &[PathBuf], is_contained: bool) -> String {
    let own = is_contained.then(|| PathBuf::from(PROGRAMS));
    let usual = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let all = first.iter().cloned().chain(own).chain(std::env::split_paths(&usual));
    std::env::join_paths(all).unwrap_or(usual).to_string_lossy().into_owned()
}

/// Finds `flex-pv`: beside this program, or in `PATH`.
pub fn flex_pv() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_path_buf));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain(std::env::split_paths(&path).collect::<Vec<_>>());
    folders.map(|folder| folder.join("flex-pv")).find(|file| file.is_file()).and_then(|file| file.canonicalize().ok())
}

/// Returns the directories that a container has empty, with and without links.
fn covered() -> Vec<PathBuf> {
    let all = COVERED.iter().map(PathBuf::from);
    all.flat_map(|top| [top.canonicalize().unwrap_or_else(|_| top.clone()), top]).collect()
}

/// Returns the mounts of directories in `PATH`, and of the names of hosts, which are in directories that the container has
/// empty.
fn uncovered(path: &OsStr) -> Vec<Bind> {
    let tops = covered();
    let is_covered =
        |path: &PathBuf| tops.iter().all(|top| top != path) && tops.iter().any(|top| path.starts_with(top));
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute() && folder.is_dir());
    let resolvers = Some(PathBuf::from(RESOLVERS)).filter(|file| file.is_file());
    let real = folders.chain(resolvers).filter_map(|file| Some((file.canonicalize().ok()?, file)));
    let binds = real.flat_map(|(real, file)| {
        let places = [Some(file.clone()), (file != real).then(|| real.clone())].into_iter().flatten();
        places.filter(is_covered).map(move |place| Bind::of(place, &real, true)).collect::<Vec<_>>()
    });
    binds.collect()
}

/// Brings a program that the person has named into the container at its own place, with its folder, also where other users
/// may not go. A folder with files of all others, such as `/tmp`, stays outside.
fn named(path: &Path) -> Option<Bind> {
    let real = path.canonicalize().ok().filter(|_| path.is_absolute())?;
    let kind = fs::metadata(&real).ok()?;
    let folder = real.parent()?;
    let is_system = folder == Path::new("/") || SYSTEM.iter().any(|top| folder.starts_with(top));
    if is_system || !(kind.is_file() || kind.is_dir()) {
        return None;
    }
    let is_of_all = covered().iter().any(|top| top.starts_with(folder));
    let brought = if kind.is_dir() || is_of_all { real.as_path() } else { folder };
    Some(Bind::of(brought, brought, true))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::desk::Program;

    #[test]
    fn only_programs_in_covered_directories_are_mounted_again() {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let socket = folder.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        let path = format!("/usr/bin:/tmp:/tmp/no-such-directory:{}:{}", socket.display(), folder.path().display());
        let binds = uncovered(path.as_ref());
        let own: Vec<_> = binds.iter().filter(|bind| !bind.target.ends_with("resolv.conf")).collect();
        assert!(own.iter().all(|bind| bind.target == folder.path() && bind.read_only) && own.len() == 1, "{own:?}");
    }

    #[test]
    fn a_program_comes_with_its_folder_and_nothing_of_others() {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let real = folder.path().canonicalize().unwrap();
        let (program, socket) = (real.join("program"), real.join("socket"));
        fs::write(&program, "").unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        let alone = tempfile::NamedTempFile::new_in("/tmp").unwrap();
        let file = alone.path().canonicalize().unwrap();
        for (path, expected) in [
            (program.as_path(), Some(&real)),
            (real.as_path(), Some(&real)),
            (file.as_path(), Some(&file)),
            (socket.as_path(), None),
            (Path::new("/tmp"), None),
            (Path::new("/usr/bin/env"), None),
            (Path::new("program"), None),
            (Path::new("/no/such/program"), None),
        ] {
            assert_eq!(named(path), expected.map(|at| Bind::of(at, at, true)), "{}", path.display());
        }
    }

    #[test]
    fn all_words_of_the_person_bring_their_folders() {
        let folders = [tempfile::tempdir_in("/tmp").unwrap(), tempfile::tempdir_in("/tmp").unwrap()];
        let real = folders.each_ref().map(|folder| folder.path().canonicalize().unwrap());
        let files = real.each_ref().map(|folder| folder.join("program"));
        files.iter().for_each(|file| fs::write(file, "").unwrap());
        let words = files.iter().map(|file| file.display().to_string()).collect();
        let tools = Tools { program: Some(Program { words }), ..Tools::default() };
        let has = |binds: &[Bind], folder: &PathBuf| binds.iter().any(|bind| bind.target == *folder);
        let binds = programs(&[], &tools);
        assert!(real.iter().all(|folder| has(&binds, folder)), "{binds:?}");
        let binds = programs(&[], &Tools::default());
        assert!(!real.iter().any(|folder| has(&binds, folder)), "{binds:?}");
    }
}
