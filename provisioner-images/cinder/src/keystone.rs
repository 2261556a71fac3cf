//! The login: it returns a token and the endpoint of Cinder.

use ::http::{Method, StatusCode};
use flex_image_kit::Failure;
use serde_json::{Value, json};

use crate::cloud::{Access, Cloud, Credential, Domain, Identity, Keystone, Named, with_version};
use crate::http::{Answer, Http};
use crate::trouble::{Kind, Trouble};

/// The data for requests to Cinder.
#[derive(Clone)]
pub struct Session {
    /// The endpoint of Cinder with the project, without a slash at its end.
    pub endpoint: String,
    /// The value of `X-Auth-Token`.
    pub token: String,
    /// A new login may return another token.
    pub renewable: bool,
}

/// Logs in.
///
/// # Errors
/// If Keystone refuses. The message names the place of the credentials.
pub async fn log_in(http: &Http, cloud: &Cloud) -> Result<Session, Trouble> {
    let keystone = match &cloud.access {
        Access::NoAuth { endpoint, user, project } => {
            return Ok(Session {
                endpoint: format!("{endpoint}/{project}"),
                token: format!("{user}:{project}"),
                renewable: false,
            });
        }
        Access::Keystone(keystone) => keystone,
    };
    let url = format!("{}/auth/tokens", keystone.auth_url);
    let body = request(&keystone.identity);
    let server = format!("Keystone at {} ({})", keystone.auth_url, cloud.origin);
    let answer = http.send(&server, Method::POST, &url, &[], Some(&body)).await?;
    let token = answer.headers.get("X-Subject-Token").and_then(|token| token.to_str().ok()).map(str::to_owned);
    let Some(token) = token.filter(|_| answer.status == StatusCode::CREATED) else {
        return Err(refused(&answer, keystone, cloud));
    };
    let endpoint = match &keystone.endpoint {
        Some(endpoint) => with_project(endpoint, &answer.body),
        None => endpoint(&answer.body, keystone, cloud)?,
    };
    Ok(Session { endpoint, token, renewable: true })
}

/// Builds the request for a token. The function is pure.
fn request(identity: &Identity) -> Value {
    let domain = |domain: &Domain| match domain {
        Domain::Id(id) => json!({ "id": id }),
        Domain::Name(name) => json!({ "name": name }),
    };
    let named = |named: &Named| match named {
        Named::Id(id) => json!({ "id": id }),
        Named::Name(name, of) => json!({ "name": name, "domain": domain(of) }),
    };
    match identity {
        Identity::Password { user, password, project } => {
            let mut user = named(user);
            user["password"] = json!(password.0);
            json!({ "auth": {
                "identity": { "methods": ["password"], "password": { "user": user } },
                "scope": { "project": named(project) },
            } })
        }
        Identity::ApplicationCredential { credential, secret } => {
            let mut body = match credential {
                Credential::Id(id) => json!({ "id": id }),
                Credential::Name(name, user) => json!({ "name": name, "user": named(user) }),
            };
            body["secret"] = json!(secret.0);
            let methods = json!(["application_credential"]);
            json!({ "auth": { "identity": { "methods": methods, "application_credential": body } } })
        }
    }
}

fn refused(answer: &Answer, keystone: &Keystone, cloud: &Cloud) -> Trouble {
    let said = answer.body["error"]["message"].as_str().unwrap_or("no reason given");
    let at = format!("Keystone at {} ({})", keystone.auth_url, cloud.origin);
    match answer.status.as_u16() {
        401 => Trouble::new(
            Kind::Denied,
            format!(
                "{at} does not let us in: {said} Check the user, the password, the project and their domains, and \
                     that the user has a role in the project."
            ),
        ),
        status @ (408 | 429 | 500..=599) => Trouble::new(Kind::Passing, format!("{at} fails with {status}: {said}")),
        status => Trouble::new(
            Kind::Denied,
            format!("{at} is no Keystone of version 3, or refuses the request, with {status}: {said}"),
        ),
    }
}

/// The types of Cinder's version 3 in catalogs, the best first.
const TYPES: [&str; 4] = ["block-storage", "volumev3", "block-store", "volume"];

/// Finds the endpoint in a catalog.
fn endpoint(body: &Value, keystone: &Keystone, cloud: &Cloud) -> Result<String, Trouble> {
    let catalog = body["token"]["catalog"].as_array().cloned().unwrap_or_default();
    let endpoints = |kind: &str| -> Vec<Value> {
        let of_kind = catalog.iter().filter(|service| service["type"] == kind);
        of_kind.filter_map(|service| service["endpoints"].as_array()).flatten().cloned().collect()
    };
    let fits = |one: &Value| {
        one["interface"] == keystone.interface.as_str()
            && keystone.region.as_deref().is_none_or(|region| one["region"] == region || one["region_id"] == region)
    };
    let found = TYPES.iter().find_map(|kind| endpoints(kind).into_iter().find(fits));
    if let Some(url) = found.as_ref().and_then(|one| one["url"].as_str()) {
        return with_version(url, "v3").map_err(|problem| {
            Trouble::new(Kind::Config, format!("Keystone's catalog has Cinder at a wrong address: {problem}"))
        });
    }
    let all: Vec<String> = TYPES
        .iter()
        .flat_map(|kind| endpoints(kind))
        .map(|one| {
            format!("{} in {}", one["interface"].as_str().unwrap_or("?"), one["region"].as_str().unwrap_or("no region"))
        })
        .collect();
    let has = if all.is_empty() { "no Cinder at all".to_owned() } else { format!("Cinder only as {}", all.join(", ")) };
    let region = keystone.region.as_deref().map_or(String::new(), |region| format!(" in region {region}"));
    Err(Trouble::new(
        Kind::Denied,
        format!(
            "Keystone's catalog has no {} endpoint of Cinder (service type volumev3){region}; it has {has}. Check region and \
             interface in {}",
            keystone.interface, cloud.origin
        ),
    ))
}

/// Adds the project, which an endpoint that somebody wrote may lack.
fn with_project(endpoint: &str, body: &Value) -> String {
    let project = body["token"]["project"]["id"].as_str().unwrap_or_default();
    match endpoint.rsplit('/').next() {
        Some(last) if last.starts_with('v') && !project.is_empty() => format!("{endpoint}/{project}"),
        _ => endpoint.to_owned(),
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        trouble.failure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::access::Secret;

    fn keystone(region: Option<&str>, interface: &str) -> (Keystone, Cloud) {
        let identity = Identity::ApplicationCredential {
            credential: Credential::Id("id".into()),
            secret: Secret("hidden".into()),
        };
        let keystone = Keystone {
            auth_url: "http://k/v3".into(),
            identity,
            region: region.map(str::to_owned),
            interface: interface.into(),
            endpoint: None,
        };
        let access = Access::Keystone(Box::new(keystone.clone()));
        (keystone, Cloud { access, ca_file: None, ca_key: "ca-file", origin: "cloud.conf".into() })
    }

    #[test]
    fn the_endpoint_is_that_of_the_region_and_interface() {
        let one = |interface: &str, region: &str, url: &str| json!({ "interface": interface, "region": region, "region_id": region, "url": url });
        let body = json!({ "token": { "catalog": [
            { "type": "identity", "endpoints": [one("public", "A", "http://k")] },
            { "type": "volumev2", "endpoints": [one("public", "A", "http://old/v2/p")] },
            { "type": "volumev3", "endpoints": [
                one("public", "A", "http://a:8776/v3/p"), one("internal", "A", "http://a-internal:8776/v3/p"),
                one("public", "B", "http://b:8776/v3/p"),
            ] },
        ] } });
        for (region, interface, expected) in [
            (None, "public", Some("http://a:8776/v3/p")),
            (Some("A"), "internal", Some("http://a-internal:8776/v3/p")),
            (Some("B"), "public", Some("http://b:8776/v3/p")),
            (Some("B"), "internal", None),
            (Some("C"), "public", None),
        ] {
            let (keystone, cloud) = keystone(region, interface);
            let found = endpoint(&body, &keystone, &cloud);
            assert_eq!(found.as_deref().ok(), expected, "{region:?} {interface}");
            if let Err(trouble) = found {
                assert!(
                    trouble.message.contains("internal in A") && trouble.message.contains("cloud.conf"),
                    "{trouble:?}"
                );
            }
        }
    }

    #[test]
    fn a_login_by_application_credential_has_no_scope() {
        let (keystone, _) = keystone(None, "public");
        let body = request(&keystone.identity);
        assert_eq!(body["auth"]["identity"]["application_credential"], json!({ "id": "id", "secret": "hidden" }));
        assert_eq!(body["auth"].get("scope"), None);
    }
}
