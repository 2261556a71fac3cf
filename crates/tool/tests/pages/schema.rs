//! The JSON schema of a config, a file that is printed as a whole, because JSON has no comments for markers.

use std::fs;

use crate::{COMMAND, root};

const FILE: &str = "docs/reference/config.schema.json";

#[test]
fn the_schema_is_as_the_command_prints_it() {
    let (path, printed) = (root().join(FILE), flex_tool::config_schema());
    if fs::read_to_string(&path).is_ok_and(|text| text == printed) {
        return;
    }
    assert!(
        std::env::var_os("UPDATE_PAGES").is_some(),
        "{FILE} is not as the code says. This command writes it: {COMMAND}"
    );
    fs::write(&path, printed).unwrap_or_else(|error| panic!("{FILE}: {error}"));
}
