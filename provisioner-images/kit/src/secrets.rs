//! The mask that keeps the secrets of a run out of its last words, and out of the text that it hands on to its log. The last
//! words become an event that many can read, and a log becomes a part of a bundle for support.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use flex_contract::names::SECRET_DIR;
use flex_contract::parameter::{self, NameError};
use flex_contract::request::is_reserved;

/// The variable with another directory than [`SECRET_DIR`], for trying an image without a pod.
pub const DIRECTORY_VARIABLE: &str = "FLEX_SECRETS_DIRECTORY";
/// The text in place of a secret.
const MASK: &str = "***";
/// The shortest value that is masked. Shorter values are parts of too many words.
const SHORTEST: usize = 6;
/// The shortest line of a longer text that is masked by itself.
const SHORTEST_LINE: usize = 16;
/// The number of bytes that are read of a file. A Secret has at most 1 MiB.
const LARGEST: u64 = 1 << 20;

/// Returns the directory that has the Secrets of this process.
pub fn directory() -> PathBuf {
    let folder = std::env::var_os(DIRECTORY_VARIABLE).filter(|folder| !folder.is_empty());
    folder.map_or_else(|| PathBuf::from(SECRET_DIR), PathBuf::from)
}

/// The secrets of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets {
    /// The values, the longest first, because one may be a part of another.
    values: Vec<String>,
}

impl Secrets {
    /// Returns the secrets of this process: those of its environment, and of the files in the directory of Secrets.
    pub fn of_this_run() -> Self {
        let folder = directory();
        // A value that is no text cannot be a part of a text.
        let environment =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self::of(environment.collect(), files(&folder))
    }

    /// Returns the secrets of an environment, and of the texts of files.
    pub fn of(environment: Vec<(String, String)>, files: Vec<String>) -> Self {
        let parameters = environment.iter().find(|(name, _)| name == flex_contract::variable::PARAMETER_NAMES.name);
        let parameters: Vec<String> =
            parameters.iter().flat_map(|(_, names)| names.split(',')).map(parameter::env_name).collect();
        let is_secret = |name: &str| {
            let of_contract = name != "SERVICE_TOKEN" && (is_reserved(name) || parameters.iter().any(|p| p == name));
            let interpreted = matches!(parameter::check_name(name, |_| false), Err(NameError::Interpreted { .. }));
            !(of_contract || interpreted || name == "KUBECONFIG" || name.starts_with("FLEX_"))
        };
        let of_environment = environment.iter().filter(|(name, _)| is_secret(name)).map(|(_, value)| value);
        let values: BTreeSet<&str> = of_environment.chain(&files).flat_map(|text| parts(text)).collect();
        let mut values: Vec<String> =
            values.into_iter().filter(|value| !is_location(value)).map(str::to_owned).collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self { values }
    }

    /// Masks the secrets in a text.
    pub fn mask(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.masked(text.as_bytes(), true).0).into_owned()
    }

    /// Masks the secrets in a text that arrives in parts.
    pub fn in_parts(&self) -> InParts<'_> {
        InParts { secrets: self, held: Vec::new() }
    }

    /// Masks the secrets in a text, and returns the number of bytes that were read. The bytes after them may be the beginning
    /// of a secret, unless the text is at its end.
    fn masked(&self, text: &[u8], is_end: bool) -> (Vec<u8>, usize) {
        let (mut masked, mut at) = (Vec::with_capacity(text.len()), 0);
        while at < text.len() {
            let rest = &text[at..];
            let begins = |value: &String| value.len() > rest.len() && value.as_bytes().starts_with(rest);
            if !is_end && self.values.iter().any(begins) {
                break;
            }
            match self.values.iter().find(|value| rest.starts_with(value.as_bytes())) {
                Some(value) => {
                    masked.extend_from_slice(MASK.as_bytes());
                    at += value.len();
                }
                None => {
                    masked.push(text[at]);
                    at += 1;
                }
            }
        }
        (masked, at)
    }
}

/// A text that arrives in parts. Bytes that may be the beginning of a secret are kept until more arrive, and no others.
#[derive(Debug)]
pub struct InParts<'a> {
    secrets: &'a Secrets,
    held: Vec<u8>,
}

impl InParts<'_> {
    /// Takes the next part, and returns the masked text up to which no secret can have begun.
    pub fn part(&mut self, part: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(part);
        let (masked, read) = self.secrets.masked(&self.held, false);
        self.held.drain(..read);
        masked
    }

    /// Returns the end of the text.
    pub fn end(self) -> Vec<u8> {
        self.secrets.masked(&self.held, true).0
    }
}

/// Returns the parts of a value that are masked. These are the whole value, and if it has several lines each line and
/// the text after a name in it.
fn parts(text: &str) -> Vec<&str> {
    let long = |text: &str, least: usize| text.chars().count() >= least;
    let whole = text.trim();
    let lines = whole.lines().map(str::trim).filter(|line| *line != whole && long(line, SHORTEST_LINE));
    let named = whole.lines().filter_map(|line| line.split_once([':', '=']));
    let named = named.map(|(_, value)| value.trim().trim_matches(['"', '\'']).trim());
    // A single line may be anything: `a:b` may be a password too.
    let named = named.filter(|_| whole.contains('\n'));
    [whole].into_iter().chain(lines).chain(named).filter(|part| long(part, SHORTEST)).collect()
}

/// Checks for addresses without a password, and paths. People need them to mend a failure.
fn is_location(value: &str) -> bool {
    let in_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    let is_path = value.starts_with('/') && value[1..].contains('/') && value.chars().all(in_path);
    let is_address = value.contains("://") && !value.contains(['@', '?', '\n']);
    let is_number = value.parse::<IpAddr>().is_ok() || value.parse::<SocketAddr>().is_ok();
    is_path || is_address || is_number
}

/// Returns the texts of the files of all Secrets. A file that cannot be read cannot be repeated either.
fn files(folder: &Path) -> Vec<String> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        // The kubelet keeps the real files in directories whose names begin with two dots, and links to them.
        entries
            .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b".."))
            .map(|entry| entry.path())
            .collect()
    };
    let read = |path: PathBuf| -> Option<String> {
        use std::io::Read;
        let file = std::fs::File::open(path).ok()?;
        let mut bytes = Vec::new();
        file.take(LARGEST).read_to_end(&mut bytes).ok()?;
        String::from_utf8(bytes).ok()
    };
    entries(folder).iter().flat_map(|secret| entries(secret)).filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(environment: &[(&str, &str)], files: &[&str]) -> Secrets {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Secrets::of(environment, files.iter().map(|text| (*text).to_owned()).collect())
    }

    #[test]
    fn secrets_are_masked_and_values_of_the_contract_are_not() {
        let known = secrets(
            &[
                ("ARRAY_PASSWORD", "hunter22"),
                ("ARRAY_PIN", "12345"),
                ("SERVICE_TOKEN", "token-of-the-array\n"),
                ("CLAIM_UUID", "c0ffee00-0000-4000-8000-000000000001"),
                ("PARAMETER_NAMES", "use-nfs-server,mode"),
                ("USE_NFS_SERVER", "nas.example"),
                ("HOSTNAME", "provision-c0ffee-x"),
                ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
                ("ARRAY_URL", "https://array.example/api"),
                ("ARRAY_WITH_PASSWORD", "https://me:secret@array.example/api"),
                ("ARRAY", "10.20.30.40"),
                ("CA_FILE", "/etc/flex-secrets/array/ca.pem"),
                ("EMPTY", ""),
            ],
            &[],
        );
        for (text, masked) in [
            ("+ login -p hunter22 -u me", "+ login -p *** -u me"),
            ("hunter22hunter22", "******"),
            ("pin 12345", "pin 12345"),
            ("Bearer token-of-the-array.", "Bearer ***."),
            (
                "c0ffee00-0000-4000-8000-000000000001 on nas.example",
                "c0ffee00-0000-4000-8000-000000000001 on nas.example",
            ),
            ("provision-c0ffee-x asks 10.96.0.1", "provision-c0ffee-x asks 10.96.0.1"),
            ("10.20.30.40 is off", "10.20.30.40 is off"),
            ("https://array.example/api is off", "https://array.example/api is off"),
            ("https://me:secret@array.example/api is off", "*** is off"),
            ("no /etc/flex-secrets/array/ca.pem", "no /etc/flex-secrets/array/ca.pem"),
            ("", ""),
        ] {
            assert_eq!(known.mask(text), masked, "{text}");
        }
    }

    #[test]
    fn each_part_of_a_longer_secret_is_masked() {
        let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nshort\n-----END KEY-----\n";
        let known = secrets(
            &[],
            &[key, "password = \"pass word 1\"\nuser=me\nurl: https://a.example/x\n", "a:b:c:d", "abcdef\n"],
        );
        for (text, masked) in [
            (key.trim_end(), "***"),
            ("read MIIEvQIBADANBgkqhkiG9w0", "read ***"),
            ("short", "short"),
            ("login pass word 1 me https://a.example/x", "login *** me https://a.example/x"),
            ("a:b:c:d", "***"),
            ("b:c", "b:c"),
            ("xabcdefx", "x***x"),
        ] {
            assert_eq!(known.mask(text), masked, "{text}");
        }
        // A part of another secret is masked with it.
        let known = secrets(&[("A", "abcdef"), ("B", "abcdefghi")], &[]);
        assert_eq!(known.mask("abcdefghi abcdef"), "*** ***");
    }

    #[test]
    fn a_text_in_parts_is_masked_as_a_whole_one_wherever_it_is_cut() {
        let known = secrets(
            &[
                ("A", "abcdef"),
                ("B", "abcdefghi"),
                ("C", "xyzabc"),
                ("D", "two words\nand two lines"),
                ("E", "gr\u{fc}n und blau"),
            ],
            &[],
        );
        let texts = [
            "abcdef abcdefghi abcdefgh",
            "abcabcdef",
            "xyzabcdef",
            "a two words\nand two lines, two words\nand",
            "gr\u{fc}n und blau, gr\u{fc}n",
            "--password=abcdef\n",
            "abcde",
            "",
        ];
        for text in texts {
            let whole = known.mask(text);
            for size in 1..=text.len().max(1) {
                let mut parts = known.in_parts();
                let mut masked: Vec<u8> = text.as_bytes().chunks(size).flat_map(|part| parts.part(part)).collect();
                assert!(parts.held.len() < 23, "no more is kept than the longest secret: {:?}", parts.held);
                masked.extend(parts.end());
                assert_eq!(String::from_utf8(masked).unwrap(), whole, "{text} in parts of {size} bytes");
            }
        }
        assert_eq!(known.mask(texts[0]), "*** *** ***gh");
        assert_eq!(known.mask(texts[3]), "a ***, two words\nand");
        // A line leaves as soon as it is there, and bytes that are no text leave as they are.
        let mut parts = known.in_parts();
        assert_eq!(parts.part(b"a line\n"), b"a line\n");
        assert_eq!(parts.part(b"\xff\xfe abcdef\xff"), b"\xff\xfe ***\xff");
    }

    #[test]
    fn files_are_found_as_the_kubelet_lays_them_out() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("array");
        std::fs::create_dir_all(secret.join("..2026")).unwrap();
        std::fs::write(secret.join("..2026/password"), "hunter22\n").unwrap();
        std::os::unix::fs::symlink("..2026", secret.join("..data")).unwrap();
        std::os::unix::fs::symlink("..data/password", secret.join("password")).unwrap();
        std::fs::write(secret.join("binary"), b"\xff\xfe").unwrap();
        assert_eq!(files(folder.path()), ["hunter22\n"]);
        assert_eq!(files(Path::new("/nonexistent")), [""; 0]);
    }
}
