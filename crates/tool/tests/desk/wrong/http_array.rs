//! Mistakes in programs for an HTTP array, which are found behind a front, or by commands that write and read volumes.

use flex_desk::conformance::Case;

use super::row::{By, Only, Row};

/// The lines of the programs that mistakes replace.
const TRIES: &str = r#"TRIES = {"GET": 2}"#;
const GIVES_UP: &str = "            if not left:";
const FAIL: &str = "def fail(kind, text):";
const FAILS: &str = r#"        fail("retry", f"the array answered {answer.status} to {method} {path}")"#;
const MAKE: &str = r#"    one = found[0] if found else ask("POST", f"/{kind}", body)"#;
const REMOVE: &str = "    for one in find(kind, name):";
const LIST: &str = r#"[one for one in ask("GET", "/volumes") if len(one["name"]) == 36]"#;

/// Lets the program send a request for a new volume twice.
const TWICE: (&str, &str) = (TRIES, r#"TRIES = {"GET": 2, "POST": 2}"#);

/// Each mistake in the program of Python.
pub(super) const PYTHON: &[Row] = &[
    ("asks again for a volume", By(Case::AnswerLost), &[TWICE]),
    (
        "asks again for a volume when its line is closed",
        Only(Case::AnswerLost),
        &[
            TWICE,
            (GIVES_UP, r#"            if not left or (method == "POST" and not isinstance(error, ConnectionError)):"#),
        ],
    ),
    (
        "deletes the first of two volumes, and lists one",
        By(Case::AnswerLost),
        &[
            TWICE,
            (REMOVE, "    for one in find(kind, name)[:1]:"),
            (LIST, r#"list({one["name"]: one for one in ask("GET", "/volumes")}.values())"#),
        ],
    ),
    (
        "takes a conflict for a failure",
        By(Case::AnswerLost),
        &[(MAKE, r#"    one = ask("POST", f"/{kind}", {**body, "unique": True})"#)],
    ),
    (
        "gives up after a failure of the server",
        Only(Case::ServerFails),
        &[(FAILS, r#"        fail("never", f"no {path}")"#)],
    ),
    (
        "gives up a snapshot if the server fails in the second attempt, too",
        By(Case::ServerFails),
        &[(
            FAILS,
            r#"        is_last = operation == "snapshot" and env["ATTEMPT"] != "1"
        fail("never" if is_last else "retry", f"no {path}")"#,
        )],
    ),
    (
        "takes a failure at a deletion for gone",
        By(Case::ServerFails),
        &[(
            FAILS,
            r#"        if operation == "delete":
            return []
        fail("retry", f"no {path}")"#,
        )],
    ),
    (
        "takes a failure for an empty list",
        By(Case::ServerFails),
        &[(
            FAILS,
            r#"        if operation == "list":
            return []
        fail("retry", f"no {path}")"#,
        )],
    ),
    (
        "takes a failure for a missing volume",
        By(Case::ServerFails),
        &[(
            FAILS,
            r#"        if method == "GET":
            return []
        fail("retry", f"no {path}")"#,
        )],
    ),
    (
        "prints its token with a failure",
        By(Case::ServerFails),
        &[(
            FAILS,
            r#"        print(method, path, headers, flush=True)
        fail("retry", f"no {path}")"#,
        )],
    ),
    (
        "gives a new volume another name for a while",
        By(Case::KilledAtAnswer),
        &[(
            MAKE,
            r#"    temporary = {**body, "name": "tmp-" + os.urandom(4).hex()}
    one = found[0] if found else ask("POST", f"/{kind}", temporary)
    one = ready(kind, one)
    ask("PATCH", f"/{kind}/{one['id']}", {"name": body["name"]})"#,
        )],
    ),
    (
        "gives a new volume another name for a while, and tidies up unless it is killed",
        Only(Case::KilledAtAnswer),
        &[
            (
                FAIL,
                r#"pending = []


def fail(kind, text):
    while pending:
        remove(*pending.pop())"#,
            ),
            (
                MAKE,
                r#"    if found:
        return ready(kind, found[0])
    temporary = "tmp-" + os.urandom(4).hex()
    pending.append((kind, temporary))
    one = ready(kind, ask("POST", f"/{kind}", {**body, "name": temporary}))
    ask("PATCH", f"/{kind}/{one['id']}", {"name": body["name"]})
    pending.clear()"#,
            ),
        ],
    ),
    ("waits a second, and asks again", By(Case::ServerSlow), &[TWICE, ("timeout=30", "timeout=1")]),
    (
        "waits a second, and asks again only then",
        Only(Case::ServerSlow),
        &[
            TWICE,
            (GIVES_UP, r#"            if not left or (method == "POST" and not isinstance(error, TimeoutError)):"#),
            ("timeout=30", "timeout=1"),
        ],
    ),
    (
        "takes nothing to delete for a failure",
        By(Case::DeleteTwice),
        &[(
            REMOVE,
            r#"    if not find(kind, name):
        fail("retry", "there is none")
    for one in find(kind, name):"#,
        )],
    ),
    (
        "creates a volume before it is ready",
        By(Case::VolumeIsLast),
        &[(r#"while one["state"] != "ready":"#, "while False:")],
    ),
    ("makes empty clones", By(Case::CloneContent), &[(r#"if env.get("CLONE_OF"):"#, "if False:")]),
    (
        "makes empty snapshots",
        By(Case::SnapshotRestore),
        &[(r#"{"name": snapshot_id, "volume": source("volumes", volume_id)}"#, r#"{"name": snapshot_id}"#)],
    ),
    (
        "makes the volume anew when it grows",
        By(Case::Expand),
        &[(
            r#"            ask("PATCH", f"/volumes/{volume['id']}", {"bytes""#,
            r#"            remove("volumes", volume_id)
            make("volumes", {"name": volume_id, "bytes""#,
        )],
    ),
    (
        "makes each volume one MiB",
        By(Case::Sizes),
        &[(r#"{"name": volume_id, "bytes": int(env["SIZE_BYTES"])}"#, r#"{"name": volume_id, "bytes": 1 << 20}"#)],
    ),
];

/// Each mistake in the program of the shell.
pub(super) const SHELL: &[Row] = &[
    ("gives up after a failure", By(Case::ServerFails), &[("exec flex-pv fail retry", "exec flex-pv fail never")]),
    ("reads no status", By(Case::ServerFails), &[("curl -fsS", "curl -sS")]),
    (
        "lists whatever it has got",
        By(Case::LineCut),
        &[("found=$(must GET /volumes)", "found=$(ask GET /volumes || :)")],
    ),
    (
        "lists what it has got before its client failed",
        Only(Case::LineCut),
        &[(
            "found=$(must GET /volumes)",
            r#"found=$(ask GET /volumes) || [ -n "$found" ] || exec flex-pv fail retry "the array lists nothing""#,
        )],
    ),
    (
        "makes a volume without a look",
        By(Case::AnswerLost),
        &[("    if [ -z \"$one\" ]; then\n        from", "    if true; then\n        from")],
    ),
    ("lets its client ask again", By(Case::AnswerLost), &[("curl -fsS", "curl -fsS --retry 2 --retry-all-errors")]),
];
