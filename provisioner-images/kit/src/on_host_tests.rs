use std::io::Cursor;

use flex_contract::exit;

use super::*;

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIH3";

fn host(address: &str, user: &str, key: &str) -> Result<Host, Failure> {
    Host::from_env(|name| {
        let value = match name {
            "SSH_HOST" => address,
            "SSH_USER" => user,
            "SSH_HOST_KEY" => key,
            _ => return None,
        };
        Some(value.to_owned())
    })
}

#[test]
fn a_host_may_have_any_kind_of_address() {
    for (address, name, port) in [
        ("nas.example", "nas.example", 22),
        ("nas_1:2222", "nas_1", 2222),
        ("10.0.0.1:22", "10.0.0.1", 22),
        ("[fd00::1]:23", "fd00::1", 23),
        ("fd00::1", "fd00::1", 22),
    ] {
        let host = host(address, "root", &format!("{KEY} root@nas")).unwrap();
        assert_eq!((host.name.as_str(), host.port, host.key.as_str()), (name, port, KEY), "{address}");
    }
}

#[test]
fn nothing_of_the_config_becomes_an_option_or_a_second_host() {
    for (address, user, key, says) in [
        ("", "root", KEY, "no ssh-host"),
        ("-oProxyCommand=x", "root", KEY, "ssh-host"),
        ("a b", "root", KEY, "ssh-host"),
        ("a\nb", "root", KEY, "ssh-host"),
        ("a:b", "root", KEY, "ssh-host"),
        ("a@b", "root", KEY, "ssh-host"),
        ("a", "-x", KEY, "ssh-user"),
        ("a", "a b", KEY, "ssh-user"),
        ("a", "root", "", "no ssh-host-key"),
        ("a", "root", "ssh-ed25519", "no public key"),
        ("a", "root", "* ssh-ed25519\nb", "no public key"),
        ("a", "root", &format!("{KEY}\n* {KEY}"), "no public key"),
    ] {
        let failure = host(address, user, key).expect_err(address);
        assert!(failure.code == exit::CONFIG && failure.message.contains(says), "{address} {user} {key}: {failure}");
    }
    let arguments = host("a", "b", KEY).unwrap().arguments("/x", "/y");
    let at = arguments.iter().position(|argument| argument == "--").unwrap();
    assert_eq!(arguments[at + 1..], ["a", COMMAND]);
}

/// A shell reads each value back, whatever is in it.
#[test]
fn each_value_is_one_word_of_the_program() {
    let strange =
        ["", "a b", "'", "''\\'", "$(exit 7)", "`exit 7`", "a\nb", "\\", "}", "flex_program() { exit 7", "é\u{7f}"];
    for value in strange {
        let program = whole_program(&[("VALUE".into(), value.into())], "printf %s \"$VALUE\"");
        for shell in [["sh", "-s"].as_slice(), &["busybox", "sh", "-s"]] {
            let mut child = Command::new(shell[0]);
            child.args(&shell[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = child.spawn().unwrap();
            child.stdin.take().unwrap().write_all(program.as_bytes()).unwrap();
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{value}: {output:?}");
            assert_eq!(String::from_utf8(output.stdout).unwrap(), value);
        }
    }
}

#[test]
fn half_a_program_does_nothing() {
    let program = whole_program(&[("A".into(), "b".into())], "echo first\necho second");
    for cut in 0..program.find("flex_program </dev").unwrap() {
        let mut child = Command::new("sh");
        child.arg("-s").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = child.spawn().unwrap();
        child.stdin.take().unwrap().write_all(&program.as_bytes()[..cut]).unwrap();
        assert_eq!(child.wait_with_output().unwrap().stdout, b"", "cut at {cut}");
    }
}

#[test]
fn only_variables_that_no_shell_interprets_reach_the_host() {
    let get = |name: &str| (name != "ABSENT").then(|| "x".to_owned());
    for name in ["PATH", "IFS", "LD_PRELOAD", "1A", "A-B", "", "A B", "ABSENT"] {
        assert_eq!(values(&[name.to_owned()], get).expect_err(name).code, exit::USAGE, "{name}");
    }
    assert_eq!(values(&["CLAIM_UUID".into()], get).unwrap(), [("CLAIM_UUID".to_owned(), "x".to_owned())]);
}

#[test]
fn the_text_of_a_login_is_not_the_sign() {
    for (text, ready, rest) in [
        ("welcome\nflex-ready\nflex-list 1\n", true, "flex-list 1\n"),
        ("welcome flex-ready\n", false, ""),
        ("flex-ready", false, ""),
        ("", false, ""),
    ] {
        let mut output = Cursor::new(text);
        assert_eq!(is_ready(&mut output).unwrap(), ready, "{text}");
        let mut left = String::new();
        output.read_to_string(&mut left).unwrap();
        assert_eq!(left, rest);
    }
}

/// Gives each byte alone, as a slow connection may.
struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, part: &mut [u8]) -> io::Result<usize> {
        let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
        (part[0], self.0) = (*first, rest);
        Ok(1)
    }
}

#[test]
fn the_log_and_the_last_words_have_no_secret() {
    let known = Secrets::of(vec![("CHAP_PASSWORD".into(), "secret-of-16.chars".into())], Vec::new());
    let noise = "noise\n".repeat(TAIL);
    let said = format!("{noise}Command:\n\ttgtadm --user=flex --password=secret-of-16.chars\n{LAST_WORDS}\nthe end");
    let mut log = Vec::new();
    let end = hand_on(Slow(said.as_bytes()), &mut log, &known).unwrap();
    let masked = said.replace("secret-of-16.chars", "***");
    assert_eq!(String::from_utf8(log).unwrap(), masked);
    assert_eq!(end, masked[masked.len() - TAIL..]);
}

#[test]
fn each_end_has_its_code_and_words() {
    for (code, ready, said, expected, words) in [
        (Some(65), true, "noise\nflex-last-words\nno such pool\n", 65, "no such pool"),
        (Some(3), true, "flex-last-words\nold\nflex-last-words\nnew", 3, "new"),
        (Some(1), true, "zfs: command not found", 1, "zfs: command not found"),
        (Some(1), true, "", 1, "said nothing"),
        (Some(255), false, "No ED25519 host key is known for storage-host", 78, "ssh-host-key"),
        (Some(255), false, "Host key verification failed.", 78, "ssh-host-key"),
        (Some(255), false, "root@a: Permission denied (publickey).", 77, "authorized_keys"),
        (Some(255), false, "connect to host a port 22: Connection refused", 75, "refused"),
        (Some(75), false, "", 75, "earlier run"),
        (Some(127), false, "flock: not found", 78, "flock"),
        (Some(0), false, "", 78, "cannot run programs"),
        (None, true, "", 75, "connection ended"),
    ] {
        let failure = outcome("nas", &Talked { ready, code, said: said.to_owned() }).unwrap_err();
        assert!(failure.code == expected && failure.message.contains(words), "{code:?} {said}: {failure:?}");
    }
    assert_eq!(outcome("nas", &Talked { ready: true, code: Some(0), said: "a warning".into() }), Ok(()));
}
