//! The parameters of the shipped images, from the tables of their pages.

use flex_core::config::keys;
use serde_json::{Map, Value, json};

use crate::markdown::plain;

/// The shipped images that read parameters, each with its page.
const IMAGES: [(&str, &str); 4] = [
    ("cinder", include_str!("../../../../provisioner-images/cinder/README.md")),
    ("csi", include_str!("../../../../provisioner-images/csi/README.md")),
    ("hostpath", include_str!("../../../../provisioner-images/hostpath/README.md")),
    ("nfs", include_str!("../../../../provisioner-images/nfs/README.md")),
];

/// Returns what editors can say of the parameters in the data of a config, for each image that the config may name.
pub(super) fn hints() -> Vec<Value> {
    let hint = |(image, page): (&str, &str)| {
        let named = json!({ "pattern": format!("(^|/){image}[:@]") });
        json!({
            "if": { "required": [keys::IMAGE.name], "properties": { (keys::IMAGE.name): named } },
            "then": { "properties": parameters(page) },
        })
    };
    IMAGES.into_iter().map(hint).collect()
}

/// Reads the table of parameters of a page.
fn parameters(page: &str) -> Map<String, Value> {
    let mut rows = page.lines().skip_while(|line| !line.starts_with("| parameter |")).map_while(cells);
    let headings = rows.next().unwrap_or_default();
    let column = |heading: &str| headings.iter().position(|cell| *cell == heading);
    let (meaning, default) = (column("meaning"), column("default"));
    let mut found = Map::new();
    for row in rows {
        let text = |column: Option<usize>| column.and_then(|column| row.get(column)).copied().unwrap_or_default();
        let default = match text(default) {
            "" => String::new(),
            default => format!(" Default: {default}."),
        };
        let about = plain(&format!("{}.{default}", text(meaning)));
        for name in text(Some(0)).split('`').skip(1).step_by(2) {
            found.insert(name.to_owned(), json!({ "description": about }));
        }
    }
    found
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let inside = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(inside.split('|').map(str::trim).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_each_image_has_its_parameters() {
        let of = |image: &str| parameters(IMAGES.into_iter().find(|(name, _)| *name == image).unwrap().1);
        for (image, name, about) in [
            ("cinder", "type", "volume type. Default: Cinder's."),
            ("csi", "csi-limit", "the largest size of a volume. Default: none."),
            ("hostpath", "node-paths", "the directories of single nodes."),
            ("nfs", "port", "the server's port; also write port=… in mountOptions of the class. Default: 2049."),
        ] {
            assert_eq!(of(image)[name]["description"], about, "{image}");
        }
        assert!(of("nfs").contains_key("server") && of("nfs").contains_key("export"), "a row may have two names");
    }
}
