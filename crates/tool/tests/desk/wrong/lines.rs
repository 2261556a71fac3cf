//! The lines of the program of the shell that mistakes replace.

pub(super) const PROVISION: &str = "provision)";
pub(super) const HALF: &str = "half=$base/.half-$id";
pub(super) const VOLUME: &str = "volume=$base/$id";
pub(super) const BASE: &str = "base=${BASE_PATH:-/srv/volumes}";
pub(super) const IDS: &str = "ids=$id ;; *)";
pub(super) const CHECK: &str = r#"case $ids in *[!0-9a-f-]*) exec flex-pv fail never "an id is no UUID" ;; esac"#;
pub(super) const NO_ID: &str = r#"case $OPERATION:$id in delete:) exec flex-pv fail never "the run has no id" ;; esac"#;
pub(super) const NO_VOLUME: &str = r#"if [ ! -d "$volume" ]; then"#;
pub(super) const FIRST: &str = r#"        flex-pv remove "$half""#;
pub(super) const CLONE: &str = r#"flex-pv copy "$base/$CLONE_OF" "$half""#;
pub(super) const RESTORE: &str = r#"flex-pv copy "$snapshot" "$half""#;
pub(super) const MAKE: &str = r#"mkdir "$half"
            chmod 0777 "$half""#;
pub(super) const CREATE: &str = r#"exec flex-pv create --copied --local "$volume""#;
pub(super) const DELETE: &str = r#"delete) exec flex-pv remove "$volume" "$half" ;;"#;
pub(super) const EXPAND: &str = "expand | modify)";
pub(super) const NO_SNAPSHOT: &str = r#"if [ ! -d "$snapshot" ]; then"#;
pub(super) const SNAPSHOT: &str = r#"        flex-pv remove "$half_snapshot"
        flex-pv copy "$volume" "$half_snapshot"
        flex-pv rename "$half_snapshot" "$snapshot""#;
pub(super) const COPY_SNAPSHOT: &str = r#"flex-pv copy "$volume" "$half_snapshot""#;
pub(super) const DELETE_SNAPSHOT: &str = r#"delete-snapshot) exec flex-pv remove "$snapshot" "$half_snapshot" ;;"#;
pub(super) const NAMES: &str = r#"names=$(ls "$base")"#;
pub(super) const LIST: &str = r#"do echo "volume $name - $base/$name"; done; echo end; } | flex-pv list"#;
pub(super) const OTHERWISE: &str = r#"*) exec flex-pv fail never "this program cannot $OPERATION" ;;"#;
