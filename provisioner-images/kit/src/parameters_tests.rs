use super::*;

const KNOWN: [&str; 6] = ["on-delete", "subdirectory", "owner", "node-paths", "path-pattern", "mode"];

fn given(operation: &str, names: &str) -> Given {
    Given { operation: operation.into(), class: "nfs".into(), names: words(names), ..Given::default() }
}

fn refused(given: &Given) -> String {
    match given.unknown(&KNOWN) {
        Some(Unknown::Refused(message)) => message,
        other => panic!("{given:?}: {other:?}"),
    }
}

#[test]
fn a_misspelt_name_is_refused_with_the_name_that_was_meant() {
    for (name, meant) in [
        ("on-deletion", "on-delete"),
        ("ondelete", "on-delete"),
        ("onDelete", "on-delete"),
        ("subdirectroy", "subdirectory"),
        ("path-patern", "path-pattern"),
        ("node-path", "node-paths"),
        ("owners", "owner"),
        ("Modes", "mode"),
    ] {
        for operation in ["provision", "move-in"] {
            let message = refused(&given(operation, &format!("mode,{name}")));
            assert!(message.contains(&format!("parameter `{name}` (did you mean `{meant}`?)")), "{message}");
            for says in ["ConfigMap or StorageClass of class `nfs`", "explain nfs", "`ignored-parameters`"] {
                assert!(message.contains(says), "{says}: {message}");
            }
        }
    }
}

#[test]
fn a_name_like_no_other_is_refused_with_all_names() {
    let message = refused(&given("provision", "colour"));
    assert!(message.contains("`colour`") && !message.contains("did you mean"), "{message}");
    assert!(message.contains("It knows on-delete, subdirectory, owner, node-paths, path-pattern, mode."), "{message}");
}

#[test]
fn names_that_the_image_or_another_program_reads_are_accepted() {
    for names in [
        "",
        "on-delete,mode",
        // The same variables.
        "on_delete,Mode,Path.Pattern",
        "csi.storage.k8s.io/provisioner-secret-name,csi.storage.k8s.io/fstype,team.example/owned-by",
        "fsType",
        "fstype",
        "ignored-parameters",
    ] {
        assert_eq!(given("provision", names).unknown(&KNOWN), None, "{names}");
    }
    let ignored = "archiveOnDelete, pathPattern\n  nodePath".to_owned();
    let env = |name: &str| match name {
        "OPERATION" => Some("provision".to_owned()),
        "PARAMETER_NAMES" => Some("archiveOnDelete,ignored-parameters,nodePath,pathPattern".to_owned()),
        "IGNORED_PARAMETERS" => Some(ignored.clone()),
        _ => None,
    };
    assert_eq!(check(env, &KNOWN), Ok(()));
}

#[test]
fn runs_for_existing_volumes_note_the_name_and_go_on() {
    for operation in Operation::all().map(Operation::as_str).chain(["attach", ""]) {
        let found = given(operation, "on-deletion").unknown(&KNOWN);
        match operation {
            "provision" | "move-in" => assert!(matches!(found, Some(Unknown::Refused(_))), "{operation}: {found:?}"),
            _ => match found {
                Some(Unknown::Noted(note)) => assert!(note.contains("`on-deletion`"), "{operation}: {note}"),
                other => panic!("{operation}: {other:?}"),
            },
        }
    }
}

#[test]
fn a_modify_run_refuses_the_names_of_its_attributes_alone() {
    let attributes = Given {
        attributes: vec!["iops".into()],
        attributes_class: "fast".into(),
        ..given("modify", "colour,iops,on-delete")
    };
    let message = refused(&attributes);
    assert!(message.contains("`iops`") && !message.contains("`colour`"), "{message}");
    assert!(message.contains("in the VolumeAttributesClass `fast`. If"), "{message}");
    let message = refused(&Given { operation: "provision".into(), ..attributes });
    assert!(message.contains("`iops`, `colour`") && message.contains("ConfigMap"), "{message}");
}

#[test]
fn an_event_shows_the_whole_message() {
    let long: Vec<String> = (0..9).map(|n| format!("on-delete-{n}-{}", "x".repeat(200))).collect();
    let names: Vec<String> = KNOWN.iter().map(|name| format!("{name}-{}", "y".repeat(12))).collect();
    for names in [long, names] {
        let class = "c".repeat(250);
        let given = Given { class, attributes_class: "a".repeat(250), ..given("provision", &names.join(",")) };
        let message = refused(&Given { attributes: vec![names[0].clone()], ..given.clone() });
        assert!(message.chars().count() <= 600, "{}: {message}", message.chars().count());
        let message = refused(&given);
        assert!(message.chars().count() <= 600, "{}: {message}", message.chars().count());
        assert!(message.contains("more"), "{message}");
    }
}
