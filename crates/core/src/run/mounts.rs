//! Mounts of a storage with a directory for each volume: a run sees only the directories that it works on.
//!
//! A mount by `subPath` shows one directory alone. The run can remove or replace neither this directory nor another.
//! The kubelet follows no link that leads out of the storage.

use flex_contract::names::CONTAINER;
use flex_contract::operation::Operation;
use flex_contract::request::RunRequest;
use flex_contract::storage;
use k8s_openapi::api::core::v1::{HostPathVolumeSource, PodTemplateSpec, Volume, VolumeMount};

/// The beginning of the names of the volumes with directories that must exist. The kubelet names the volume in the event
/// about a missing directory.
pub(super) const EXISTING_VOLUME: &str = "flex-existing-";
/// The beginning of the names of the volumes with directories that a run makes.
const NEW_VOLUME: &str = "flex-new-";

/// The part of the storage that a run sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// The whole storage, read-only.
    All,
    /// These directories.
    Directories(Vec<Directory>),
}

/// A directory of the storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directory {
    name: String,
    /// The folder of the directory, if it has moved in. No other storage has it.
    only_in: Option<String>,
    read_only: bool,
    state: State,
}

/// The state of a directory before the run, as far as the orchestrator knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// The run makes a volume of the directory. A pod of the claim may mount the volume before the kubelet has ended the
    /// mounts of the run.
    New,
    /// The directory may be missing. The kubelet makes it then.
    MayBeMissing,
    /// The directory exists, at this path on the node, if the path is known. If it is missing, its data are lost.
    Exists(Option<String>),
}

/// Returns the part that a run with these requests of one operation sees. An id that the orchestrator cannot have
/// written becomes no path, so that the image finds no directory.
pub(crate) fn sight<'a>(requests: impl IntoIterator<Item = &'a RunRequest>) -> Sight {
    use State::{Exists, MayBeMissing, New};
    let mut directories: Vec<Directory> = Vec::new();
    for request in requests {
        let volume = |read_only, state| of_volume(&request.volume_id, &request.moved_in_path, read_only, state);
        let id = request.snapshot.as_ref().map_or("", |snapshot| snapshot.id.as_str());
        let snapshot = |read_only, state| own(storage::snapshot(id), read_only, state);
        let existing = || Exists(path_of(&request.volume_source));
        let source = request.clone_of.as_ref();
        let source = source.and_then(|of| of_volume(&of.id, &of.moved_in_path, true, Exists(path_of(&of.source))));
        match request.operation {
            // A run that moves storage in sees links and missing directories as they are: the kubelet follows the first,
            // and makes the second. Without a path, the storage is none that moves in.
            Operation::MoveIn if request.moved_in_path.is_empty() => {}
            Operation::List | Operation::MoveIn => return Sight::All,
            Operation::Capacity => directories.extend(own(Some(storage::CAPACITY_DIR.into()), true, MayBeMissing)),
            Operation::Provision => {
                let stored = snapshot(true, Exists(None));
                directories.extend([volume(false, New), source, stored].into_iter().flatten());
            }
            Operation::Delete => directories.extend(volume(false, MayBeMissing).into_iter().flat_map(with_mark)),
            Operation::Expand | Operation::Modify => directories.extend(volume(false, existing())),
            Operation::MoveOut => {}
            Operation::Snapshot => {
                directories.extend([volume(true, existing()), snapshot(false, MayBeMissing)].into_iter().flatten());
            }
            Operation::DeleteSnapshot => {
                directories.extend(snapshot(false, MayBeMissing).into_iter().flat_map(with_mark));
            }
        }
    }
    // The kubelet makes missing directories in this order. By it, a copy recognises a source volume that was lost.
    directories.sort_by_key(|directory| directory.read_only);
    Sight::Directories(directories)
}

fn own(name: Option<String>, read_only: bool, state: State) -> Option<Directory> {
    name.map(|name| Directory { name, only_in: None, read_only, state })
}

/// Returns the directory of a volume: that of its id, or the one that has moved in.
fn of_volume(id: &str, moved_in_path: &str, read_only: bool, state: State) -> Option<Directory> {
    if moved_in_path.is_empty() {
        return own(storage::volume(id), read_only, state);
    }
    let (folder, name) = storage::moved_in(moved_in_path)?;
    Some(Directory { name: name.to_owned(), only_in: Some(folder.to_owned()), read_only, state })
}

/// Adds the directory in which a delete run notes that it is done. A pod of the volume reaches only the volume.
fn with_mark(directory: Directory) -> impl Iterator<Item = Directory> {
    let mark = storage::mark(&directory.name).map(|name| Directory { name, ..directory.clone() });
    [Some(directory), mark].into_iter().flatten()
}

/// Returns the path on the node that a volume source names.
fn path_of(source: &str) -> Option<String> {
    let source: serde_json::Value = serde_json::from_str(source).ok()?;
    ["local", "hostPath"].iter().find_map(|kind| source[kind]["path"].as_str()).map(str::to_owned)
}

/// Sets the mounts of the image's container at these paths to the part that the run sees.
pub(super) fn restrict(template: &mut PodTemplateSpec, paths: &[String], sight: &Sight) {
    let Some(spec) = &mut template.spec else { return };
    let volumes = spec.volumes.get_or_insert_default();
    let Some(container) = spec.containers.iter_mut().find(|container| container.name == CONTAINER) else { return };
    let Some(mounts) = container.volume_mounts.take() else { return };
    let (restricted, others): (Vec<_>, Vec<_>) =
        mounts.into_iter().partition(|mount| paths.contains(&mount.mount_path));
    let mut observed = Vec::new();
    let mut on_their_own: Vec<(Volume, VolumeMount)> = Vec::new();
    let mut existing = 0;
    for mount in restricted {
        let Sight::Directories(directories) = sight else {
            observed.push(read_only(mount));
            continue;
        };
        let on_node = volumes.iter().find(|volume| volume.name == mount.name).and_then(|it| it.host_path.as_ref());
        let base = on_node.map_or(mount.mount_path.as_str(), |on_node| on_node.path.trim_end_matches('/'));
        let here = |directory: &&Directory| directory.only_in.as_deref().is_none_or(|folder| folder == base);
        for directory in directories.iter().filter(here) {
            let by_sub_path = of_directory(&mount, directory);
            // The kubelet binds a `subPath` on the node, and it sets no `fsGroup` on a volume that is mounted there
            // already. A `hostPath` volume is mounted nowhere but in the container.
            if on_node.is_some() && directory.state == State::New {
                let name = format!("{NEW_VOLUME}{}", on_their_own.len());
                // The runtime makes the directory beside the container, so that a run without one leaves nothing.
                let volume = host_path(&name, format!("{base}/{}", directory.name), None);
                on_their_own.push((volume, VolumeMount { name, sub_path: None, ..by_sub_path }));
                continue;
            }
            observed.push(by_sub_path);
            // The kubelet starts no container while one of these is missing, so that it makes no empty directory in its
            // place. The mount by `subPath` is still what the image works on: it follows no link out of the storage.
            if let Some(path) = place_of(directory, base, paths.len() == 1).filter(|_| on_node.is_some()) {
                let name = format!("{EXISTING_VOLUME}{existing}");
                let mount_path = format!("{}/{existing}", storage::EXISTING);
                existing += 1;
                let mount = VolumeMount { name: name.clone(), mount_path, ..VolumeMount::default() };
                on_their_own.push((host_path(&name, path, Some("Directory")), read_only(mount)));
            }
        }
    }
    observed.extend(others);
    for (volume, mount) in on_their_own {
        volumes.retain(|other| other.name != volume.name);
        volumes.push(volume);
        observed.push(mount);
    }
    container.volume_mounts = Some(observed);
}

fn host_path(name: &str, path: String, kind: Option<&str>) -> Volume {
    let on_node = HostPathVolumeSource { path, type_: kind.map(str::to_owned) };
    Volume { name: name.into(), host_path: Some(on_node), ..Volume::default() }
}

/// Returns the path of an existing directory on the node, if the directory is in the storage with this path.
fn place_of(directory: &Directory, base: &str, is_only: bool) -> Option<String> {
    let path = format!("{base}/{}", directory.name);
    match &directory.state {
        State::Exists(Some(known)) => (*known == path).then_some(path),
        State::Exists(None) => is_only.then_some(path),
        State::MayBeMissing | State::New => None,
    }
}

fn of_directory(mount: &VolumeMount, Directory { name, read_only: is_read_only, .. }: &Directory) -> VolumeMount {
    let path = match name.as_str() {
        storage::CAPACITY_DIR => mount.mount_path.clone(),
        name => format!("{}/{name}", mount.mount_path),
    };
    let mount = VolumeMount { mount_path: path, sub_path: Some(name.clone()), ..mount.clone() };
    match is_read_only {
        true => read_only(mount),
        false => VolumeMount { read_only: None, recursive_read_only: None, ..mount },
    }
}

/// Makes a mount read-only, and also file systems that are mounted below it, if the node supports that.
fn read_only(mount: VolumeMount) -> VolumeMount {
    let recursive = mount.recursive_read_only.or_else(|| Some("IfPossible".to_owned()));
    let recursive_read_only = recursive.filter(|_| mount.mount_propagation.as_deref().is_none_or(|it| it == "None"));
    VolumeMount { read_only: Some(true), recursive_read_only, ..mount }
}

#[cfg(test)]
mod tests {
    use flex_contract::request::{CloneSource, Snapshot};

    use super::*;
    use crate::config::Recipe;
    use crate::run::job::tests::{recipe, request, run_target};
    use crate::run::job::{RunTarget, job};

    const ID: &str = "0d9c2f0e-0000-4000-8000-000000000001";
    const OTHER: &str = "0d9c2f0e-0000-4000-8000-000000000002";
    const TEMPLATE: &str = "spec: {containers: [{name: provisioner, volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b}, {name: c, mountPath: /c}]}], volumes: [{name: a, hostPath: {path: /a}}, {name: b, nfs: {server: s, path: /x}}, {name: c, emptyDir: {}}]}";

    fn with_mounts(paths: &str) -> Recipe {
        recipe(&[("image", "i"), ("pod-template", TEMPLATE), ("storage-mounts", paths)])
    }

    /// Returns the mounts of new directories of the node, in the form `path + directory`, and then those of the
    /// template's volumes a, b and c, in the form `path = volume/directory`, with `!` for a read-only mount.
    fn mounts(job: &k8s_openapi::api::batch::v1::Job) -> Vec<String> {
        let spec = job.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
        let mounts = spec.containers[0].volume_mounts.as_ref().unwrap();
        let new = mounts.iter().filter(|mount| mount.name.starts_with(NEW_VOLUME)).map(|mount| {
            assert_eq!((&mount.sub_path, mount.read_only), (&None, None), "the run makes its volume there");
            let mut volumes = spec.volumes.iter().flatten().filter(|volume| volume.name == mount.name);
            let on_node = volumes.next().unwrap().host_path.as_ref().unwrap();
            assert_eq!((on_node.type_.as_deref(), volumes.next()), (None, None));
            format!("{} + {}", mount.mount_path, on_node.path)
        });
        let shown = mounts.iter().filter(|mount| mount.name.len() == 1).map(|mount| {
            let (directory, only) = (mount.sub_path.clone().unwrap_or_default(), mount.read_only == Some(true));
            format!("{} = {}/{directory}{}", mount.mount_path, mount.name, if only { "!" } else { "" })
        });
        new.chain(shown).collect()
    }

    fn of(operation: Operation, change: impl Fn(&mut RunRequest)) -> Vec<String> {
        let recipe = with_mounts("/a");
        let mut request = RunRequest { operation, ..request(&recipe) };
        change(&mut request);
        let observed = mounts(&job(&recipe, &request, &run_target(None)));
        assert_eq!(observed[observed.len() - 2..], ["/b = b/", "/c = c/"], "the other mounts are unchanged");
        observed[..observed.len() - 2].to_vec()
    }

    fn is_copy_of(id: &str) -> impl Fn(&mut RunRequest) {
        let source = CloneSource {
            id: id.into(),
            pv_name: "p".into(),
            source: String::new(),
            size_bytes: 1,
            node: String::new(),
            moved_in_path: String::new(),
        };
        move |request| request.clone_of = Some(source.clone())
    }

    fn is_of_snapshot(id: &str) -> impl Fn(&mut RunRequest) {
        let snapshot = Snapshot { id: id.into(), ..Snapshot::default() };
        move |request| request.snapshot = Some(snapshot.clone())
    }

    #[test]
    fn each_operation_sees_only_the_storage_that_it_works_on() {
        use Operation::{Capacity, Delete, DeleteSnapshot, Expand, List, Modify, Provision, Snapshot};
        let none = |_: &mut RunRequest| {};
        let (own, new) = (format!("/a/{ID} = a/{ID}"), format!("/a/{ID} + /a/{ID}"));
        for operation in [Expand, Modify] {
            assert_eq!(of(operation, none), [own.as_str()], "{operation}");
        }
        // A delete run of an attempt gets the name of its data source, but does not see it.
        let gone = [own.clone(), format!("/a/.deleting-{ID} = a/.deleting-{ID}")];
        assert_eq!(of(Delete, none), gone);
        assert_eq!(of(Delete, is_copy_of(OTHER)), gone);
        assert_eq!(of(Delete, is_of_snapshot(OTHER)), gone);
        // A mount of a new volume on the node would keep the kubelet from setting the group of the claim's pod.
        assert_eq!(of(Provision, none), [new.as_str()]);
        assert_eq!(of(Provision, is_copy_of(OTHER)), [new.clone(), format!("/a/{OTHER} = a/{OTHER}!")]);
        let stored = format!("/a/.snapshot-{OTHER} = a/.snapshot-{OTHER}");
        assert_eq!(of(Provision, is_of_snapshot(OTHER)), [new.clone(), format!("{stored}!")]);
        assert_eq!(
            of(Snapshot, is_of_snapshot(OTHER)),
            [stored.clone(), format!("{own}!")],
            "what is written comes first"
        );
        let no_volume = |request: &mut RunRequest| {
            is_of_snapshot(OTHER)(request);
            request.volume_id = String::new();
        };
        let mark = format!("/a/.deleting-.snapshot-{OTHER} = a/.deleting-.snapshot-{OTHER}");
        assert_eq!(of(DeleteSnapshot, no_volume), [stored, mark]);
        let about_none = |request: &mut RunRequest| request.volume_id = String::new();
        assert_eq!(of(List, about_none), ["/a = a/!"]);
        assert_eq!(of(Capacity, about_none), ["/a = a/.flex-capacity!"]);
    }

    /// A user may have written a handle, and a backup may have restored an id.
    #[test]
    fn only_a_volume_id_becomes_a_path() {
        for id in ["", ".", "..", "../etc", "x/y", "anything"] {
            let change = |request: &mut RunRequest| request.volume_id = id.into();
            for operation in [Operation::Provision, Operation::Delete, Operation::Expand, Operation::Modify] {
                assert_eq!(of(operation, change), [""; 0], "{operation} {id}");
            }
            let (own, new) = (format!("/a/{ID} = a/{ID}"), format!("/a/{ID} + /a/{ID}"));
            assert_eq!(of(Operation::Provision, is_copy_of(id)), [new.as_str()], "{id}");
            assert_eq!(of(Operation::Provision, is_of_snapshot(id)), [new.as_str()], "{id}");
            assert_eq!(of(Operation::DeleteSnapshot, is_of_snapshot(id)), [""; 0], "{id}");
            assert_eq!(of(Operation::Snapshot, is_of_snapshot(id)), [format!("{own}!")], "{id}");
        }
    }

    /// The provenance of a volume names another directory than that of its id. No other storage has it, and a path that
    /// is no plain name in a folder becomes no mount.
    #[test]
    fn storage_that_has_moved_in_is_mounted_by_the_name_in_its_record() {
        use Operation::{Delete, Expand, MoveIn, MoveOut, Provision, Snapshot};
        let moved = |path: &str| {
            let path = path.to_owned();
            move |request: &mut RunRequest| {
                request.moved_in_path = path.clone();
                request.volume_source = format!(r#"{{"hostPath":{{"path":"{path}"}}}}"#);
            }
        };
        let own = "/a/pvc-1_team_data = a/pvc-1_team_data".to_owned();
        assert_eq!(of(Expand, moved("/a/pvc-1_team_data")), [own.as_str()]);
        let mark = "/a/.deleting-pvc-1_team_data = a/.deleting-pvc-1_team_data";
        assert_eq!(of(Delete, moved("/a/pvc-1_team_data")), [own.as_str(), mark]);
        let longest = format!("/a/{}", "x".repeat(255));
        assert_eq!(of(Delete, moved(&longest)).len(), 1, "no directory can mark that one");
        assert_eq!(of(MoveIn, moved("/a/pvc-1_team_data")), ["/a = a/!"], "links and what is missing are seen");
        assert_eq!(of(MoveOut, moved("/a/pvc-1_team_data")), [""; 0]);
        assert_eq!(of(MoveIn, moved("")), [""; 0]);
        let stored = |request: &mut RunRequest| {
            moved("/a/pvc-1_team_data")(request);
            is_of_snapshot(OTHER)(request);
        };
        assert_eq!(of(Snapshot, stored), [format!("/a/.snapshot-{OTHER} = a/.snapshot-{OTHER}"), format!("{own}!")]);
        let copy = |request: &mut RunRequest| {
            is_copy_of(OTHER)(request);
            request.clone_of.as_mut().unwrap().moved_in_path = "/a/old".into();
        };
        assert_eq!(of(Provision, copy), [format!("/a/{ID} + /a/{ID}"), "/a/old = a/old!".into()]);
        for path in ["/b/x", "/a/x/y", "/a/..", "/a/.hidden", "/a", &format!("/a/{OTHER}"), "x"] {
            assert_eq!(of(Delete, moved(path)), [""; 0], "{path}");
        }
        let recipe = with_mounts("/a");
        assert_eq!(
            existing(&recipe, |request| {
                request.operation = MoveIn;
                moved("/a/pvc-1_team_data")(request);
            }),
            [""; 0],
            "the image says what is missing"
        );
    }

    #[test]
    fn each_path_has_the_mounts_of_the_run_and_the_run_gets_their_names() {
        let env = |recipe: &Recipe| {
            let job = job(recipe, &request(recipe), &RunTarget::default());
            let env = job.spec.unwrap().template.spec.unwrap().containers[0].env.clone().unwrap();
            env.into_iter().find(|variable| variable.name == storage::VARIABLE).and_then(|variable| variable.value)
        };
        let two = with_mounts("/a, /b");
        // Only the first is a directory of the node.
        let observed = [format!("/a/{ID} + /a/{ID}"), format!("/b/{ID} = b/{ID}"), "/c = c/".into()];
        assert_eq!(mounts(&job(&two, &request(&two), &RunTarget::default())), observed);
        assert_eq!(env(&two).as_deref(), Some("/a,/b"));
        let none = recipe(&[("image", "i"), ("pod-template", TEMPLATE)]);
        assert_eq!(mounts(&job(&none, &request(&none), &RunTarget::default())), ["/a = a/", "/b = b/", "/c = c/"]);
        assert_eq!(env(&none), None);
    }

    /// Returns the directories on the node that must exist before the container starts.
    fn existing(recipe: &Recipe, change: impl Fn(&mut RunRequest)) -> Vec<String> {
        let mut request = request(recipe);
        change(&mut request);
        let spec = job(recipe, &request, &run_target(None)).spec.unwrap().template.spec.unwrap();
        let volumes = spec.volumes.unwrap().into_iter().filter_map(|volume| volume.host_path.zip(Some(volume.name)));
        let existing = volumes.filter(|(_, name)| name.starts_with(EXISTING_VOLUME));
        let paths: Vec<String> = existing
            .map(|(on_node, name)| {
                assert_eq!(on_node.type_.as_deref(), Some("Directory"));
                let mounts = spec.containers[0].volume_mounts.as_ref().unwrap();
                let mount =
                    mounts.iter().find(|mount| mount.name == name).expect("the kubelet checks only mounted volumes");
                assert_eq!(mount.read_only, Some(true));
                on_node.path
            })
            .collect();
        paths
    }

    /// A kubelet makes the directory of a `subPath` that is missing. A pod of the claim would start on it, and lose
    /// sight of the loss.
    #[test]
    fn a_lost_directory_is_not_created_again() {
        use Operation::{Delete, DeleteSnapshot, Expand, Modify, Provision, Snapshot};
        let one = with_mounts("/a");
        let source = |path: &str| format!(r#"{{"local":{{"path":"{path}"}}}}"#);
        let here = format!("/a/{ID}");
        for operation in [Expand, Modify, Snapshot, Delete, Provision] {
            let observed = existing(&one, |request| {
                (request.operation, request.volume_source) = (operation, source(&here));
            });
            let must_exist = matches!(operation, Expand | Modify | Snapshot);
            assert_eq!(observed, if must_exist { vec![here.clone()] } else { vec![] }, "{operation}");
        }
        let clone_of = |request: &mut RunRequest| {
            is_copy_of(OTHER)(request);
            request.clone_of.as_mut().unwrap().source = source(&format!("/a/{OTHER}"));
        };
        assert_eq!(existing(&one, clone_of), [format!("/a/{OTHER}")]);
        assert_eq!(existing(&one, is_of_snapshot(OTHER)), [format!("/a/.snapshot-{OTHER}")]);
        let deleted = |request: &mut RunRequest| {
            is_of_snapshot(OTHER)(request);
            request.operation = DeleteSnapshot;
        };
        assert_eq!(existing(&one, deleted), [""; 0]);

        // With several directories the volume names its directory, and a snapshot does not.
        let template = TEMPLATE.replace("nfs: {server: s, path: /x}", "hostPath: {path: /b}");
        let two = recipe(&[("image", "i"), ("pod-template", &template), ("storage-mounts", "/a, /b")]);
        let expand = |path: String| {
            move |request: &mut RunRequest| {
                (request.operation, request.volume_source) = (Expand, source(&path));
            }
        };
        assert_eq!(existing(&two, expand(format!("/b/{ID}"))), [format!("/b/{ID}")]);
        assert_eq!(existing(&two, expand(format!("/elsewhere/{ID}"))), [""; 0], "the image reports that");
        assert_eq!(existing(&two, is_of_snapshot(OTHER)), [""; 0]);
    }
}
