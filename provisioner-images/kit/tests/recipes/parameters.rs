//! All recipes are short, and no recipe takes a default in place of a parameter whose name is misspelt.

use std::fs;
use std::path::Path;

use super::cases::id;
use super::desk::Desk;

/// Returns the names of all recipes.
pub fn recipes() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configmaps/recipes");
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<_> = names.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    assert!(names.len() >= 9, "{names:?}");
    names
}

/// Leaves a letter out.
fn misspelt(name: &str) -> String {
    let (last, rest) = name.char_indices().next_back().map(|(at, last)| (last, &name[..at])).unwrap();
    let shorter = &rest[..rest.char_indices().next_back().unwrap().0];
    format!("{shorter}{last}")
}

#[test]
fn a_run_of_each_recipe_refuses_a_misspelt_parameter_as_its_first_act() {
    for recipe in recipes() {
        let desk = Desk::new(&recipe, &[], &[]);
        let parameters = desk.parameters();
        // A recipe without parameters refuses each of them.
        let cases = match parameters.is_empty() {
            true => vec![("fs-typ".to_owned(), None)],
            false => parameters.iter().map(|name| (misspelt(name), Some(name))).collect(),
        };
        for (wrong, right) in cases {
            let names = parameters.iter().filter(|name| Some(*name) != right).chain([&wrong]);
            let names = names.cloned().collect::<Vec<_>>().join(",");
            let given = [("PARAMETER_NAMES", names.as_str())];
            let ended = desk.run_until("provision", &id(1), &given, usize::MAX);
            let said = &ended.last_words;
            assert!(ended.code == Some(78) && said.contains(&format!("`{wrong}`")), "{recipe} {wrong}: {ended:?}");
            let meant = right.map(|name| format!("did you mean `{name}`?"));
            assert!(meant.is_none_or(|words| said.contains(&words)), "{recipe} {wrong}: {said}");
            // The desk counts the begin and the end of the program.
            assert_eq!(desk.points(), 2, "{recipe} {wrong}: another program ran than `flex-pv parameters`");
            // There is no storage, so that these runs end soon. They do not end because of the parameter.
            for operation in ["delete", "list"] {
                let ended = desk.run(operation, &id(1), &given);
                let words = format!("the image does not know the parameter `{wrong}`, and the run continues");
                assert!(ended.output.contains(&words), "{recipe} {operation} {wrong}: {ended:?}");
                assert!(!ended.last_words.contains(&wrong), "{recipe} {operation} {wrong}: {ended:?}");
            }
        }
    }
}

#[test]
fn the_script_of_each_recipe_has_at_most_60_lines() {
    for recipe in recipes() {
        let script = fs::read_to_string(Desk::new(&recipe, &[], &[]).path("script")).unwrap();
        let lines = script.lines().count();
        assert!(lines <= 60, "{recipe}: {lines}");
    }
}

#[test]
fn each_recipe_knows_the_parameters_of_its_config() {
    for recipe in recipes() {
        let desk = Desk::new(&recipe, &[], &[]);
        let ended = desk.run("polish", &id(1), &[]);
        assert!(!matches!(ended.code, Some(0) | None), "{recipe}: {ended:?}");
        assert!(!ended.output.contains("does not know"), "{recipe}: {ended:?}");
    }
}
