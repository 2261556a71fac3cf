//! Requests to the API server.

use http::uri::PathAndQuery;
use http::{Method, Request, Uri};

/// The parameter of a write by which the API server does not look for fields that it does not know. Looking for them
/// takes a second reading of each body, and its result is a warning that no program reads.
const IGNORE_UNKNOWN_FIELDS: &str = "fieldValidation=Ignore";

/// Makes a request that writes ask for no field validation, unless it asks for one. Other requests stay as they are.
#[must_use]
pub fn without_field_validation<B>(mut request: Request<B>) -> Request<B> {
    let writes = [Method::POST, Method::PUT, Method::PATCH].contains(request.method());
    if let Some(uri) = writes.then(|| ignoring_unknown_fields(request.uri())).flatten() {
        *request.uri_mut() = uri;
    }
    request
}

fn ignoring_unknown_fields(uri: &Uri) -> Option<Uri> {
    let query = uri.query().unwrap_or_default();
    if query.split('&').any(|pair| pair.starts_with("fieldValidation=")) {
        return None;
    }
    // Clients write a query that is empty, or that begins or ends with `&`.
    let query = query.trim_matches('&');
    let separator = if query.is_empty() { "" } else { "&" };
    let mut parts = uri.clone().into_parts();
    let text = format!("{}?{query}{separator}{IGNORE_UNKNOWN_FIELDS}", uri.path());
    parts.path_and_query = Some(PathAndQuery::try_from(text).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(method: &Method, uri: &str) -> String {
        let request = Request::builder().method(method).uri(uri).body(()).unwrap();
        without_field_validation(request).uri().to_string()
    }

    #[test]
    fn writes_ask_for_no_field_validation() {
        for (uri, expected) in [
            ("/api/v1/persistentvolumes", "/api/v1/persistentvolumes?fieldValidation=Ignore"),
            ("/api/v1/persistentvolumes?", "/api/v1/persistentvolumes?fieldValidation=Ignore"),
            ("/a?&fieldManager=m", "/a?fieldManager=m&fieldValidation=Ignore"),
            ("https://h:6443/a?dryRun=All&", "https://h:6443/a?dryRun=All&fieldValidation=Ignore"),
        ] {
            for method in [Method::POST, Method::PUT, Method::PATCH] {
                assert_eq!(sent(&method, uri), expected, "{method}");
            }
        }
    }

    #[test]
    fn other_requests_and_those_that_ask_for_a_validation_stay_as_they_are() {
        for method in [Method::GET, Method::DELETE, Method::HEAD] {
            assert_eq!(sent(&method, "/a?&limit=5"), "/a?&limit=5", "{method}");
        }
        let strict = "/a?fieldValidation=Strict&fieldManager=m";
        assert_eq!(sent(&Method::PATCH, strict), strict);
    }
}
