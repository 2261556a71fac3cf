//! A cloud in the file format of OpenStack's cloud providers: sections in brackets, of which `[Global]` has the login.

use configparser::ini::Ini;

use super::raw::{Key, Raw};

/// The keys of `[Global]`.
pub const SPELLINGS: &[(&str, Key)] = &[
    ("auth-url", Key::AuthUrl),
    ("username", Key::Username),
    ("user-id", Key::UserId),
    ("password", Key::Password),
    ("tenant-name", Key::ProjectName),
    ("project-name", Key::ProjectName),
    ("tenant-id", Key::ProjectId),
    ("project-id", Key::ProjectId),
    ("domain-name", Key::DomainName),
    ("domain-id", Key::DomainId),
    ("user-domain-name", Key::UserDomainName),
    ("user-domain-id", Key::UserDomainId),
    ("tenant-domain-name", Key::ProjectDomainName),
    ("project-domain-name", Key::ProjectDomainName),
    ("tenant-domain-id", Key::ProjectDomainId),
    ("project-domain-id", Key::ProjectDomainId),
    ("application-credential-id", Key::CredentialId),
    ("application-credential-name", Key::CredentialName),
    ("application-credential-secret", Key::CredentialSecret),
    ("region", Key::Region),
    ("os-endpoint-type", Key::Interface),
    ("interface", Key::Interface),
    ("ca-file", Key::CaFile),
    ("cinder-endpoint", Key::Endpoint),
    ("tls-insecure", Key::Insecure),
];

/// Reads the section `[Global]`; other sections are for other programs.
///
/// # Errors
/// If the file cannot be read. The message names the file.
pub fn raw(text: &str, file: &str) -> Result<Raw, String> {
    let mut ini = Ini::new();
    let mut format = ini.defaults();
    format.delimiters = vec!['='];
    // Comments after a value are handled below, because a password may contain the characters that begin one.
    format.inline_comment_symbols = Some(Vec::new());
    ini.load_defaults(format);
    ini.read(text.to_owned()).map_err(|error| format!("{file} cannot be read: {error}"))?;
    if !ini.sections().contains(&"global".to_owned()) {
        return Err(format!(
            "{file} has no section [Global]: it must say auth-url, or cinder-endpoint, and who we are there"
        ));
    }
    let mut raw = Raw::new(&format!("[Global] of {file}"), SPELLINGS);
    raw.take(|spelling| ini.get("global", spelling).map(|value| plain(&value)));
    let written = ini.get_map_ref().get("global").into_iter().flat_map(|section| section.keys().cloned());
    raw.keep_unread(written);
    Ok(raw)
}

/// Removes the quotes of a value, or the comment after it.
fn plain(written: &str) -> String {
    let written = written.trim();
    if let Some(rest) = written.strip_prefix('"') {
        let mut value = String::new();
        let mut characters = rest.chars();
        while let Some(character) = characters.next() {
            match character {
                '"' => return value,
                '\\' => value.extend(characters.next()),
                other => value.push(other),
            }
        }
    }
    let comment = [" #", " ;", "\t#", "\t;"].iter().filter_map(|begin| written.find(begin)).min();
    written[..comment.unwrap_or(written.len())].trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_quoted_or_ends_at_a_comment() {
        for (written, expected) in [
            ("Passw0rd!", "Passw0rd!"),
            ("a#b;c", "a#b;c"),
            ("abc # said Bob", "abc"),
            ("\"a # b\" ; x", "a # b"),
            (r#""a\"b\\c""#, r#"a"b\c"#),
            ("a=b:c", "a=b:c"),
        ] {
            let raw = raw(&format!("[Global]\nPassword = {written}\n"), "f").unwrap();
            assert_eq!(raw.get(Key::Password), Some(expected), "{written}");
        }
    }
}
