//! Tests of the forms of the overview.

use flex_core::policies;
use flex_provisioner::class_health::testing::{config, identity};
use flex_provisioner::overview::testing::{NOW, cluster};
use flex_provisioner::state::index::WatchChange;
use serde_json::{Value, json};

use super::args::Form;
use super::text::Drawing;
use super::*;

fn surroundings() -> Surroundings {
    Surroundings {
        leader: Ok("flex-1 leads".into()),
        capacities: Ok(Vec::new()),
        policies: Ok(policies::states(&[])),
        unseen_configs: Vec::new(),
    }
}

/// Returns the overview of the cluster in a form.
fn shown(form: Form, class: Option<&str>, drawing: Drawing) -> String {
    shown_of(&cluster(), form, class, drawing)
}

fn shown_of(index: &Index, form: Form, class: Option<&str>, drawing: Drawing) -> String {
    let (surroundings, identity) = (surroundings(), identity());
    let overview = overview(index, (&identity.instance, class), form.scope(usize::MAX), NOW, true);
    let (identity, surroundings, overview) = (&identity, &surroundings, &overview);
    let shown = Shown { identity, surroundings, overview, elsewhere: 0, without_jobs: None, class };
    form.text(shown, drawing).unwrap()
}

#[test]
fn the_overview_shows_classes_and_claims() {
    insta::assert_snapshot!("overview", shown(Form::Table, None, Drawing::default()));
    insta::assert_snapshot!("wide", shown(Form::Wide, None, Drawing { wide: true, ..Drawing::default() }));
    insta::assert_snapshot!("names", shown(Form::Name, None, Drawing::default()));
}

#[test]
fn one_class_is_shown_with_its_limits() {
    insta::assert_snapshot!("class", shown(Form::Table, Some("gold"), Drawing::default()));
}

#[test]
fn a_class_is_shown_with_each_limit_of_its_config() {
    let mut index = cluster();
    let keys = json!({
        "service-account-name": "gold", "max-volumes-per-namespace": "4", "max-bytes-per-namespace": "8Gi",
        "max-in-flight-per-namespace": "5", "max-in-flight-per-node": "6", "placement": "selected-node",
    });
    index.change_config(WatchChange::Apply(config("gold", keys)));
    let limits = shown_of(&index, Form::Table, Some("gold"), Drawing::default());
    let words: Vec<String> = limits.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        "max-in-flight-per-namespace - 5",
        "max-in-flight-per-node - 6",
        "max-volumes-per-namespace █████░░░░░ 2 in team 4",
        "max-bytes-per-namespace ██░░░░░░░░ 2Gi in team 8Gi",
    ] {
        assert!(words.iter().any(|words| words == line), "{line}: {limits}");
    }
}

#[test]
fn yaml_has_the_same_content_as_json() {
    let json: Value = serde_json::from_str(&shown(Form::Json, None, Drawing::default())).unwrap();
    let yaml: Value = serde_saphyr::from_str(&shown(Form::Yaml, None, Drawing::default())).unwrap();
    assert_eq!(json, yaml);
    insta::assert_json_snapshot!("json", json["classes"]);
}

#[test]
fn a_picture_has_a_limited_number_of_claims_and_those_that_fail_come_first() {
    let picture = shown(Form::Table, None, Drawing { claims: Some(1), ..Drawing::default() });
    let claims = picture.split("\nCLAIM ").nth(1).unwrap();
    let lines: Vec<_> = claims.lines().take(3).collect();
    assert!(lines[1].starts_with("team/fails ") && lines[2] == "… and 3 more", "{picture}");
}

#[test]
fn tables_fit_into_a_narrow_terminal() {
    let narrow = shown(Form::Table, None, Drawing { width: Some(80), ..Drawing::default() });
    let rows: Vec<_> = narrow.lines().filter(|line| line.starts_with("gold ") || line.starts_with("team/")).collect();
    assert!(rows.len() == 5 && rows.iter().all(|row| row.chars().count() <= 80), "{narrow}");
    assert!(rows[0].ends_with('…') && rows[0].contains(" Bound 1, open 3   0/4 "), "{narrow}");
    assert!(!narrow.contains('░') && !narrow.contains("ATTEMPT") && narrow.contains("NEXT TRY"), "{narrow}");
}

#[test]
fn colours_are_only_added() {
    let plain = shown(Form::Table, None, Drawing::default());
    let coloured = shown(Form::Table, None, Drawing { coloured: true, ..Drawing::default() });
    assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), plain);
    assert!(coloured.len() > plain.len() && !plain.contains('\u{1b}'), "{plain:?}");
}
