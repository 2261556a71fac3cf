//! Tests of the directories of a node, and of the space in them.

use super::*;

#[test]
fn a_volume_is_made_in_the_directory_with_the_most_space_and_is_found_again() {
    let (node, api) = (Node::new(), Api::start(vec![Reply::Echo, Reply::Echo]));
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let paths = [path_text(node.base()), path_text(memory.path().to_owned())];
    let (both, turned) = (paths.join(" "), [paths[1].as_str(), paths[0].as_str()].join(" "));
    let room = |at: &str| {
        let ended = node.run("capacity", "", &[("BASE_PATH", at)]);
        flex_contract::capacity::Answer::read(&ended.termination_message)
            .unwrap_or_else(|error| panic!("{error}: {ended:?}"))
    };
    let (first, second, all) = (room(&paths[0]), room(&paths[1]), room(&both));
    // Other processes write there, too.
    let about = |is: u64, should: u64| is.abs_diff(should) < should / 4;
    assert!(about(all.bytes, first.bytes + second.bytes), "{all:?} of {first:?} and {second:?}");
    assert!(all.largest.is_some_and(|largest| about(largest, first.bytes.max(second.bytes))), "{all:?}");
    let twice = [paths[0].as_str(), &paths[0]].join(" ");
    assert!(about(room(&twice).bytes, first.bytes), "one file system counts once");

    for order in [&both, &turned] {
        let ended = node.run("provision", &api.kubeconfig(), &[("BASE_PATH", order)]);
        assert_eq!(ended.code, 0, "{ended:?}");
    }
    let (roomy, other) = if first.bytes > second.bytes { (&paths[0], &paths[1]) } else { (&paths[1], &paths[0]) };
    let has = |at: &str, name: &str| Path::new(at).join(name).is_dir();
    assert!(has(roomy, ID) && !has(other, ID), "in {roomy}, where there is more space");
    let grows = [("SIZE_BYTES", "2097152"), ("OLD_SIZE_BYTES", "1048576"), ("BASE_PATH", &both)];
    assert_eq!(node.run("expand", "", &grows).code, 0);
    let listed = node.command("list", "", &[("BASE_PATH", &turned)]).output().unwrap();
    let listed = flex_contract::listing::read(&String::from_utf8(listed.stdout).unwrap()).unwrap();
    assert_eq!(listed.iter().map(|entry| entry.place.as_str()).collect::<Vec<_>>(), [format!("{roomy}/{ID}")]);
    // The same for leftovers of a died run in the directory without the volume.
    let half = format!(".copying-{ID}");
    fs::create_dir(Path::new(other).join(&half)).unwrap();
    assert_eq!(node.run("delete", "", &[("BASE_PATH", &both)]).code, 0);
    assert!(!has(roomy, ID) && !has(other, &half));
}

#[test]
fn a_node_can_have_directories_of_its_own() {
    let (node, api) = (Node::new(), Api::start(vec![Reply::Echo]));
    let own = format!("node-2 /elsewhere\nnode-1   {}\n", path_text(node.base()));
    let ended = node.run("provision", &api.kubeconfig(), &[("BASE_PATH", "/nonexistent"), ("NODE_PATHS", &own)]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(node.names(), [ID]);
    let others = [("NODE_PATHS", "node-2 /elsewhere")];
    assert_eq!(node.run("delete", "", &others).code, 0, "a node that is not named has those of base-path");
    assert_eq!(node.names(), [""; 0]);
    let none = [("NODE_PATHS", "node-1")];
    let ended = node.run("provision", "", &none);
    assert!(ended.code == 69 && ended.termination_message.contains("names no directory for node node-1"), "{ended:?}");
    let ended = node.run("capacity", "", &none);
    assert_eq!(
        flex_contract::capacity::Answer::read(&ended.termination_message).map(|answer| answer.bytes),
        Ok(0),
        "{ended:?}"
    );
}

#[test]
fn its_capacity_is_the_free_space_of_the_file_system() {
    let node = Node::new();
    let ended = {
        let mut command = node.command("capacity", "", &[]);
        node.end(command.env_remove("CLAIM_UUID"))
    };
    let answer = flex_contract::capacity::Answer::read(&ended.termination_message)
        .unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let df = Command::new("df").args(["-B1", "--output=avail"]).arg(node.base()).output().unwrap();
    let free: u64 = String::from_utf8(df.stdout).unwrap().lines().nth(1).unwrap().trim().parse().unwrap();
    // Other processes write on this file system, too.
    assert!(answer.bytes > free / 2 && answer.bytes / 2 < free, "{} by the image, {free} by df", answer.bytes);
    assert_eq!((ended.code, answer.largest), (0, None));
    let ended = node.run("capacity", "", &[("BASE_PATH", "/nonexistent")]);
    assert_eq!(ended.code, 78, "{ended:?}");
}

#[test]
fn a_volume_is_expanded_where_there_is_space() {
    let node = Node::new();
    fs::create_dir(node.base().join(ID)).unwrap();
    let expand = |size: &str, old: &str| node.run("expand", "", &[("SIZE_BYTES", size), ("OLD_SIZE_BYTES", old)]);
    assert_eq!(expand("2097152", "1048576").code, 0);
    // The size that it already has needs no space.
    assert_eq!(expand("9000000000000000000", "8999999999999999999").code, 0);
    let full = expand("9000000000000000000", "1048576");
    assert_eq!(full.code, 69, "{full:?}");
    assert!(full.termination_message.contains("less than the 8999999999998951424 asked for"), "{full:?}");
    assert_eq!(node.names(), [ID]);
}
