//! Addresses with any version, changed to the version that the image uses.

use http::Uri;

/// Replaces the version at the end of an address's path: `/v1`, `/v2`, `/v2.0` and none become `version`. A project
/// after the version stays.
///
/// # Errors
/// If the address is invalid.
pub fn with_version(address: &str, version: &str) -> Result<String, String> {
    let address = address.trim().trim_end_matches('/');
    // This check comes before any message with the address, because the address could contain a password.
    if address.contains('@') {
        return Err("an address must not contain a user or password".into());
    }
    if address.contains('?') {
        return Err("an address must not contain a `?` and what follows it".into());
    }
    let uri: Uri = address.parse().map_err(|_| format!("`{address}` is no address"))?;
    let scheme = uri.scheme_str().filter(|scheme| ["http", "https"].contains(scheme));
    let (Some(scheme), Some(host)) = (scheme, uri.authority()) else {
        return Err(format!("`{address}` is no address: it must begin with http:// or https://"));
    };
    let mut parts: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
    match parts.iter().position(|part| is_version(part)) {
        Some(at) => parts[at] = version,
        None => parts.push(version),
    }
    Ok(format!("{scheme}://{host}/{}", parts.join("/")))
}

fn is_version(part: &str) -> bool {
    part.strip_prefix('v').is_some_and(|rest| {
        rest.starts_with(|c: char| c.is_ascii_digit()) && rest.chars().all(|c| c.is_ascii_digit() || c == '.')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_url_leads_to_the_third_version_of_the_api() {
        for (written, expected) in [
            ("http://keystone-host:5000/v2.0", "http://keystone-host:5000/v3"),
            ("http://keystone-host:5000", "http://keystone-host:5000/v3"),
            ("https://cloud.example/identity/v3/", "https://cloud.example/identity/v3"),
            ("http://cinder-host:8776/v2", "http://cinder-host:8776/v3"),
            ("http://[fd00::1]:8776/v2/0123abc", "http://[fd00::1]:8776/v3/0123abc"),
            ("https://cloud.example/volume", "https://cloud.example/volume/v3"),
        ] {
            assert_eq!(with_version(written, "v3").as_deref(), Ok(expected), "{written}");
        }
        for written in ["", "keystone:5000", "ftp://a/v3", "http://u:p@a/v3", "http://a/v3?x=y", "http://"] {
            assert!(with_version(written, "v3").is_err(), "{written}");
        }
        for written in
            ["http://u:sesame@a/v3", "http://u:se same@a/v3", "u:sesame@a:5000", "http://a/v3?password=sesame"]
        {
            let problem = with_version(written, "v3").unwrap_err();
            assert!(problem.contains("must not contain") && !problem.contains("same"), "{problem}");
        }
    }
}
