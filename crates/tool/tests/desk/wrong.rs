//! Wrong programs: the shell script of `new`, each with one mistake of a vendor, and the case that must find it. Programs
//! that are right in another way must pass.

use std::fs;

use flex_desk::conformance::Case;

use crate::scaffold::written;
use crate::{Files, judged};

/// The lines of the script that mistakes replace.
const CREATE: &str = "    exec flex-pv create --copied --local \"$volume\"\n";
const DELETE: &str = "delete) exec flex-pv remove \"$volume\" \"$half\" ;;";
const CLONE: &str = "clone) flex-pv copy \"$base/$CLONE_OF\" \"$half\" ;;";
const RESTORE: &str = "snapshot) flex-pv copy \"$snapshot\" \"$half\" ;;";
const SNAPSHOT: &str =
    "        flex-pv copy \"$volume\" \"$half_snapshot\"\n        flex-pv rename \"$half_snapshot\" \"$snapshot\"\n";
const DELETE_SNAPSHOT: &str = "delete-snapshot) exec flex-pv remove \"$snapshot\" \"$half_snapshot\" ;;";
const EXPAND: &str = "expand) [ -d \"$volume\" ]";
const MAKE: &str = "*) { mkdir \"$half\" && chmod 0777 \"$half\"; } || exec flex-pv fail retry";
const NAMES: &str = "names=$(ls \"$base\")";
const BASE: &str = "base=${BASE_PATH:-/var/lib/flex-mine}\n";
const VOLUME: &str = "volume=$base/$id\n";
const HALF: &str = "half=$base/.half-$id\n";
const IDS: &str = "flex-pv ids\n";
const LAST: &str = "    # The last act";

/// Texts of the script, and those that take their places.
type Edits = &'static [(&'static str, &'static str)];

/// Each mistake, with the case that must find it.
const WRONG: &[(&str, Case, Edits)] = &[
    ("names its storage by the attempt", Case::CalledAgain, &[(VOLUME, "volume=$base/$id.${ATTEMPT:-}\n")]),
    ("names its storage by the time", Case::CalledAgain, &[(VOLUME, "volume=$base/$id-${PROVISION_TS:-}\n")]),
    (
        "empties the volume in a repeated run",
        Case::CalledAgain,
        &[(CREATE, "    find \"$volume\" -mindepth 1 -delete\n    exec flex-pv create --copied --local \"$volume\"\n")],
    ),
    (
        "gives all files of a volume the same mode in a repeated run",
        Case::CalledAgain,
        &[(
            CREATE,
            "    chmod -R 0777 \"$volume\" 2>/dev/null || :\n    exec flex-pv create --copied --local \"$volume\"\n",
        )],
    ),
    (
        "has a temporary name that the next run does not know",
        Case::KilledAtChild,
        &[(HALF, "half=$(mktemp -u \"$base/.half-XXXXXX\")\n")],
    ),
    (
        "rewrites an index that it has read before",
        Case::Interleaved,
        &[
            (
                LAST,
                "    known=$(cat \"$base/.index\" 2>/dev/null || :)\n    date >/dev/null\n    printf '%s\\n%s\\n' \"$known\" \"$id\" >\"$base/.index\"\n    # The last act",
            ),
            (NAMES, "names=$(sort -u \"$base/.index\")"),
        ],
    ),
    ("lists another size", Case::Sizes, &[("volume $name - ", "volume $name 1048576 ")]),
    ("takes any parameter", Case::UnknownParameter, &[("flex-pv parameters base-path\n", "")]),
    ("ignores its parameter", Case::OtherPath, &[(BASE, "base=/var/lib/flex-mine\n")]),
    (
        "ignores its parameter in delete runs",
        Case::OtherPath,
        &[(DELETE, "delete) exec rm -rf \"/var/lib/flex-mine/$id\" ;;")],
    ),
    (
        "takes a failed deletion for a success",
        Case::StorageFails,
        &[(DELETE, "delete) flex-pv remove \"$volume\" \"$half\" || : ;;")],
    ),
    (
        "takes each failure for one that stays",
        Case::StorageFails,
        &[("flex-pv remove \"$half\"\n", "flex-pv remove \"$half\" || exec flex-pv fail never no\n")],
    ),
    (
        "takes a failed copy for a whole one",
        Case::StorageFails,
        &[(CLONE, "clone) cp -a \"$base/$CLONE_OF\" \"$half\" || : ;;")],
    ),
    (
        "gives the data of a deleted volume to the next one",
        Case::NextVolumeEmpty,
        &[
            (
                DELETE,
                "delete) flex-pv remove \"$half\" \"$base/.recycled\"; [ ! -d \"$volume\" ] || mv \"$volume\" \"$base/.recycled\" ;;",
            ),
            (
                MAKE,
                "*) { { mv \"$base/.recycled\" \"$half\" 2>/dev/null || mkdir \"$half\"; } && chmod 0777 \"$half\"; } || exec flex-pv fail retry",
            ),
        ],
    ),
    ("leaves its temporary name", Case::DeleteHalfMade, &[(DELETE, "delete) exec flex-pv remove \"$volume\" ;;")]),
    (
        "deletes what the source of the volume names",
        Case::DeleteAlone,
        &[(
            DELETE,
            "delete) path=${VOLUME_SOURCE##*path\\\":\\\"}; path=${path%%\\\"*}; exec rm -rf \"$path\" \"$half\" ;;",
        )],
    ),
    (
        "deletes everything without an id",
        Case::DeleteAlone,
        &[(IDS, ""), (DELETE, "delete) rm -rf \"$base/$id\" \"$half\" || exit ;;")],
    ),
    (
        "follows links in a deletion",
        Case::HostileContent,
        &[(
            DELETE,
            "delete) find -L \"$volume\" -delete 2>/dev/null || :; exec flex-pv remove \"$volume\" \"$half\" ;;",
        )],
    ),
    (
        "copies what links lead to",
        Case::HostileContent,
        &[(CLONE, "clone) cp -aL \"$base/$CLONE_OF\" \"$half\" 2>/dev/null || : ;;")],
    ),
    (
        "makes the volume anew when it grows",
        Case::Expand,
        &[(EXPAND, "expand) rm -rf \"$volume\"; mkdir \"$volume\"; chmod 0777 \"$volume\"; [ -d \"$volume\" ]")],
    ),
    ("makes hard links for a clone", Case::CloneContent, &[(CLONE, "clone) cp -al \"$base/$CLONE_OF\" \"$half\" ;;")]),
    ("makes a link for a clone", Case::CloneContent, &[(CLONE, "clone) ln -s \"$base/$CLONE_OF\" \"$half\" ;;")]),
    ("loses modes", Case::CloneContent, &[(CLONE, "clone) cp -r \"$base/$CLONE_OF\" \"$half\" ;;")]),
    (
        "copies no hidden files",
        Case::CloneContent,
        &[(CLONE, "clone) mkdir \"$half\"; chmod 0777 \"$half\"; cp -a \"$base/$CLONE_OF\"/* \"$half\" ;;")],
    ),
    (
        "copies under the last name",
        Case::CloneKilled,
        &[(CLONE, "clone) cp -a \"$base/$CLONE_OF\" \"$volume\"; exec flex-pv create --copied --local \"$volume\" ;;")],
    ),
    (
        "creates the volume before its content",
        Case::CloneKilled,
        &[(
            CLONE,
            "clone) mkdir \"$volume\"; chmod 0777 \"$volume\"; flex-pv create --copied --local \"$volume\"; cp -a \"$base/$CLONE_OF/.\" \"$volume\"; exit ;;",
        )],
    ),
    (
        "makes hard links for a snapshot",
        Case::SnapshotRestore,
        &[(SNAPSHOT, "        cp -al \"$volume\" \"$snapshot\"\n")],
    ),
    (
        "gives the snapshot itself to the first volume",
        Case::SnapshotRestore,
        &[(RESTORE, "snapshot) mv \"$snapshot\" \"$half\"; cp -al \"$half\" \"$snapshot\" ;;")],
    ),
    (
        "makes a snapshot under the last name",
        Case::SnapshotKilled,
        &[(SNAPSHOT, "        cp -a \"$volume\" \"$snapshot\"\n")],
    ),
    (
        "restores under the last name",
        Case::SnapshotKilled,
        &[(RESTORE, "snapshot) cp -a \"$snapshot\" \"$volume\"; exec flex-pv create --copied --local \"$volume\" ;;")],
    ),
    (
        "deletes the snapshots with a volume",
        Case::SnapshotOutlives,
        &[(DELETE, "delete) rm -rf \"$base\"/.snapshot-*; exec flex-pv remove \"$volume\" \"$half\" ;;")],
    ),
    (
        "deletes all snapshots with one",
        Case::SnapshotOutlives,
        &[(
            DELETE_SNAPSHOT,
            "delete-snapshot) rm -rf \"$base\"/.snapshot-*; exec flex-pv remove \"$half_snapshot\" ;;",
        )],
    ),
    ("lists snapshots", Case::SnapshotOutlives, &[(NAMES, "names=$(ls -A \"$base\" | sed 's/^.snapshot-//')")]),
];

/// The cases that look at copies and at what is left.
const ABOUT_COPIES: &[Case] = &[
    Case::StorageFails,
    Case::HostileContent,
    Case::CloneContent,
    Case::CloneKilled,
    Case::SnapshotRestore,
    Case::SnapshotKilled,
    Case::SnapshotOutlives,
];
const ABOUT_STORAGE: &[Case] = &[
    Case::CalledAgain,
    Case::KilledAtChild,
    Case::KilledAtTimes,
    Case::EightAtOnce,
    Case::Interleaved,
    Case::StorageFails,
    Case::DeleteGone,
    Case::NextVolumeEmpty,
    Case::DeleteHalfMade,
    Case::DeleteKilled,
    Case::ListWhole,
];

/// Programs that keep the contract in another way, with cases that could take it for a mistake.
const RIGHT: &[(&str, &[Case], Edits)] = &[
    (
        "holds a lock of all volumes for its whole run, in a file that stays",
        ABOUT_STORAGE,
        &[(IDS, "flex-pv ids\nexec 9>\"${BASE_PATH:-/var/lib/flex-mine}/.lock\"\nflock 9\n")],
    ),
    (
        "renames a volume before it removes it",
        ABOUT_STORAGE,
        &[(
            DELETE,
            "delete)\n    if [ -d \"$volume\" ]; then\n        flex-pv remove \"$base/.deleting-$id\"\n        flex-pv rename \"$volume\" \"$base/.deleting-$id\"\n    fi\n    exec flex-pv remove \"$base/.deleting-$id\" \"$half\"\n    ;;",
        )],
    ),
    (
        "copies by cp",
        ABOUT_COPIES,
        &[
            (CLONE, "clone) cp -a \"$base/$CLONE_OF\" \"$half\" ;;"),
            (RESTORE, "snapshot) cp -a \"$snapshot\" \"$half\" ;;"),
            (
                SNAPSHOT,
                "        cp -a \"$volume\" \"$half_snapshot\"\n        flex-pv rename \"$half_snapshot\" \"$snapshot\"\n",
            ),
        ],
    ),
];

/// A program in the directory that `new` has written.
struct Written {
    files: Files,
    folder: String,
    script: String,
}

impl Written {
    fn new() -> Self {
        let files = Files::new();
        let folder = written(&files, "shell");
        let script = fs::read_to_string(format!("{folder}/provision.sh")).unwrap();
        Written { files, folder, script }
    }

    /// Runs cases on the script with other texts, and returns the outcome of each with its reason.
    fn judged(&self, name: &str, edits: &[(&str, &str)], cases: &[Case]) -> Vec<(String, String)> {
        let edited = edits.iter().fold(self.script.clone(), |text, (right, wrong)| {
            assert!(text.contains(right), "{name}: the script has no `{right}`");
            text.replacen(right, wrong, 1)
        });
        let program = self.files.write(&name.replace(' ', "-"), &edited);
        let config = format!("{}/config.yaml", self.folder);
        let (_, outcomes) = judged(&config, &program, cases, &[]);
        outcomes.into_iter().map(|[_, outcome, why]| (outcome, why)).collect()
    }
}

/// Does something for each item, on as many threads as the runs need: most of them wait.
fn each<T: Sync>(items: &[T], one: impl Fn(&T) -> Option<String> + Sync) -> Vec<String> {
    let one = &one;
    std::thread::scope(|scope| {
        let parts = items.chunks(items.len().div_ceil(4));
        let threads: Vec<_> =
            parts.map(|part| scope.spawn(move || part.iter().filter_map(one).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("each program is judged")).collect()
    })
}

#[test]
fn each_wrong_program_is_found_by_its_case() {
    let written = Written::new();
    let missed = each(WRONG, |(name, case, edits)| {
        let judged = || written.judged(name, edits, &[*case]).remove(0);
        // On a busy machine, a signal may miss the moment of the mistake.
        let (outcome, why) = Some(judged()).filter(|(outcome, _)| outcome == "failed").unwrap_or_else(judged);
        (outcome != "failed").then(|| format!("{}: a program that {name}: {outcome} {why}", case.id()))
    });
    let found = WRONG.len() - missed.len();
    assert!(missed.is_empty(), "{found} of {} wrong programs are found:\n{}", WRONG.len(), missed.join("\n"));
}

#[test]
fn right_programs_of_another_kind_pass() {
    let written = Written::new();
    let blamed = each(RIGHT, |(name, cases, edits)| {
        let judged = written.judged(name, edits, cases);
        let failed: Vec<String> =
            judged.into_iter().filter(|(outcome, _)| outcome != "passed").map(|(_, why)| why).collect();
        (!failed.is_empty()).then(|| format!("a program that {name}: {}", failed.join("; ")))
    });
    assert!(blamed.is_empty(), "{}", blamed.join("\n"));
}

#[test]
fn a_secret_of_the_file_is_found_where_the_program_prints_it() {
    let written = Written::new();
    let config = format!("{}/config.yaml", written.folder);
    let text = fs::read_to_string(&config).unwrap();
    let secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: array, namespace: flex-provisioner}\nstringData: {ARRAY_PASSWORD: correct-horse}\n";
    let with_secret = text.replacen("  volume-sources:", "  secret-env: array\n  volume-sources:", 1);
    assert_ne!(text, with_secret);
    fs::write(&config, format!("{with_secret}{secret}")).unwrap();
    let cases = &[Case::NoSecretInWords];
    assert_eq!(written.judged("is right", &[], cases)[0].0, "passed");
    let places: [(&str, Edits); 3] = [
        ("prints it", &[(LAST, "    echo \"login with $ARRAY_PASSWORD\"\n    # The last act")]),
        (
            "says it",
            &[(
                "*) exec flex-pv fail never \"this",
                "*) echo \"$ARRAY_PASSWORD\" >/dev/termination-log; exit 64; echo \"this",
            )],
        ),
        (
            "names its volume so",
            &[(
                CREATE,
                "    exec flex-pv create --copied --local \"$volume\" --annotation \"example.com/login=$ARRAY_PASSWORD\"\n",
            )],
        ),
    ];
    for (name, edits) in places {
        let (outcome, why) = written.judged(name, edits, cases).remove(0);
        assert!(outcome == "failed" && why.contains("ARRAY_PASSWORD"), "{name}: {outcome} {why}");
    }
}
