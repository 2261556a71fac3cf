//! Mistakes in the program of Go.

use flex_desk::conformance::Case;

use super::row::{By, Only, Row};

/// The lines of the program that mistakes replace.
const STRINGS: &str = "\t\"strings\"\n";
const PROVISION: &str = "func provision(base, volume, half, snapshot string) {\n";
const MAKE: &str = "must(os.Mkdir(half, 0o777))
\t\tmust(os.Chmod(half, 0o777))";
const CREATE: &str = r#"become("create", "--copied", "--local", volume)"#;
const CLONE: &str = r#"copied(filepath.Join(base, os.Getenv("CLONE_OF")), half, volume)"#;
const COPY: &str = r#"flexPV("", "copy", source, half)"#;
const REMOVE: &str = "must(os.RemoveAll(path))";
const DELETE: &str = "remove(volume, half)";
const EXPAND: &str = "\tcase \"expand\", \"modify\":\n";
const OTHERWISE: &str = r#"become("fail", "never", "this program cannot "+operation)"#;

/// Each mistake, with the case that must find it.
pub(super) const WRONG: &[Row] = &[
    (
        "unlocks by a deferred call, which the last exec skips",
        By(Case::CalledAgain),
        &[(
            PROVISION,
            r#"func provision(base, volume, half, snapshot string) {
	lock := filepath.Join(base, ".lock-"+filepath.Base(volume))
	file, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL, 0o600)
	must(err)
	defer os.Remove(lock)
	defer file.Close()
"#,
        )],
    ),
    (
        "opens its volume to all by a deferred call",
        By(Case::VolumeIsLast),
        &[
            (MAKE, "must(os.Mkdir(half, 0o700))"),
            (
                CREATE,
                r#"defer os.Chmod(volume, 0o777)
	flexPV("", "create", "--copied", "--local", volume)"#,
            ),
        ],
    ),
    (
        "does nothing by default",
        By(Case::UnknownOperation),
        &[(OTHERWISE, r#"fmt.Println("nothing to do for", operation)"#)],
    ),
    (
        "compares a part of an id",
        By(Case::HostileTexts),
        &[("`^[0-9a-f]+(-[0-9a-f]+){4}$`", "`[0-9a-f]+(-[0-9a-f]+){4}`")],
    ),
    (
        "does not hear that its parameters are refused",
        Only(Case::UnknownParameter),
        &[(
            r#"flexPV("", "parameters", "base-path")"#,
            r#"_ = exec.Command("flex-pv", "parameters", "base-path").Run()"#,
        )],
    ),
    (
        "has the path of its volumes in the code of deletions",
        By(Case::OtherPath),
        &[(DELETE, r#"remove(filepath.Join("/srv/volumes", id), half)"#)],
    ),
    ("drops the error of a removal", Only(Case::StorageFails), &[(REMOVE, "_ = os.RemoveAll(path)")]),
    (
        "drops the error of a copy",
        By(Case::StorageFails),
        &[(COPY, r#"_ = exec.Command("cp", "-a", source, half).Run()"#)],
    ),
    (
        "takes each end of a removal for gone, also that by its time limit",
        By(Case::StorageFails),
        &[
            (STRINGS, "\t\"context\"\n\t\"strings\"\n\t\"time\"\n"),
            (
                REMOVE,
                r#"limit, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		if err := exec.CommandContext(limit, "rm", "-rf", path).Run(); err != nil {
			fmt.Println("it is gone:", err)
		}
		cancel()"#,
            ),
        ],
    ),
    (
        "drops the error of the creation",
        By(Case::LastWords),
        &[(CREATE, r#"_ = exec.Command("flex-pv", "create", "--copied", "--local", volume).Run()"#)],
    ),
    (
        "logs its environment",
        Only(Case::NoSecretInWords),
        &[(
            CREATE,
            r#"fmt.Println("environment:", os.Environ())
	become("create", "--copied", "--local", volume)"#,
        )],
    ),
    (
        "waits after SIGTERM for what it has asked for",
        Only(Case::EndsAfterSigterm),
        &[
            (STRINGS, "\t\"context\"\n\t\"os/signal\"\n\t\"strings\"\n\t\"time\"\n"),
            (
                PROVISION,
                r#"func provision(base, volume, half, snapshot string) {
	stopped, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	time.Sleep(time.Second)
	if stopped.Err() != nil {
		time.Sleep(20 * time.Second)
		os.Exit(1)
	}
"#,
            ),
        ],
    ),
    ("deletes in a goroutine for which nobody waits", By(Case::DeleteGone), &[(DELETE, "go remove(volume, half)")]),
    (
        "deletes nothing without a source",
        By(Case::DeleteHalfMade),
        &[(
            DELETE,
            r#"if os.Getenv("VOLUME_SOURCE") == "" {
			return
		}
		remove(volume, half)"#,
        )],
    ),
    (
        "empties the path of a deletion that it has joined with an empty id",
        By(Case::DeleteAlone),
        &[
            (r#"if needed == "" {"#, r#"if needed == "" && operation != "delete" {"#),
            (
                DELETE,
                r#"inside, _ := filepath.Glob(filepath.Join(volume, "*"))
		remove(inside...)
		remove(volume, half)"#,
            ),
        ],
    ),
    (
        "removes what is behind a link, by os.Stat in place of os.Lstat",
        Only(Case::HostileContent),
        &[
            (REMOVE, "must(removeAll(path))"),
            (
                "func isDirectory(",
                r#"func removeAll(path string) error {
	if isDirectory(path) {
		entries, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if err := removeAll(filepath.Join(path, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func isDirectory("#,
            ),
        ],
    ),
    (
        "counts bytes in 32 bits when a volume grows",
        By(Case::Expand),
        &[
            (STRINGS, "\t\"strconv\"\n\t\"strings\"\n"),
            (
                EXPAND,
                r#"	case "expand":
		bytes, err := strconv.ParseInt(os.Getenv("SIZE_BYTES"), 10, 32)
		must(err)
		fmt.Println("the volume has", bytes, "bytes")
	case "modify":
"#,
            ),
        ],
    ),
    (
        "copies by filepath.Walk and os.ReadFile",
        By(Case::CloneContent),
        &[(
            COPY,
            r#"must(filepath.Walk(source, func(path string, found os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(half, strings.TrimPrefix(path, source))
		if found.IsDir() {
			return os.MkdirAll(to, found.Mode())
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		return os.WriteFile(to, text, found.Mode())
	}))"#,
        )],
    ),
    (
        "removes a temporary directory by a deferred call, which the last exec skips",
        By(Case::CloneKilled),
        &[(
            CLONE,
            r#"folder, err := os.MkdirTemp(base, ".clone-*")
		must(err)
		defer os.Remove(folder)
		copied(filepath.Join(base, os.Getenv("CLONE_OF")), filepath.Join(folder, "half"), volume)"#,
        )],
    ),
    (
        "has no answer where the class stays the same",
        By(Case::Modify),
        &[(
            EXPAND,
            r#"	case "expand", "modify":
		if operation == "modify" && os.Getenv("ATTRIBUTES_CLASS") == os.Getenv("OLD_ATTRIBUTES_CLASS") {
			become("fail", "never", "nothing is to be changed")
		}
"#,
        )],
    ),
    (
        "prints its capacity on its standard output",
        Only(Case::Capacity),
        &[(
            r#"become("capacity", "--bytes", fmt.Sprint(space.Bavail*uint64(space.Bsize)))"#,
            r#"fmt.Println("flex-capacity 1", space.Bavail*uint64(space.Bsize))"#,
        )],
    ),
    (
        "reads its id from a file, which a batch has not",
        Only(Case::Batch),
        &[
            (
                r#"os.Getenv("CLAIM_UUID"), os.Getenv("SNAPSHOT_ID")"#,
                r#"property("claim-uuid"), os.Getenv("SNAPSHOT_ID")"#,
            ),
            (
                "func main() {",
                r#"func property(name string) string {
	text, _ := os.ReadFile("/etc/flex/" + name)
	return string(text)
}

func main() {"#,
            ),
        ],
    ),
];
