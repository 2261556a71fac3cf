//! Lists in pages that fit into memory, whatever the size of their objects.
//!
//! Users can write objects of more than a megabyte. A page of a fixed number of these has no bound that a small process
//! could hold. A page of one object is slow, because most objects are small. So the number of objects in a page follows
//! from the bytes of the page before. If a page is still too large, the client does not read it to its end, and asks
//! again for fewer objects.

use std::collections::HashMap;
use std::fmt::Debug;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::api::ListParams;
use kube::client::Body;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tower::BoxError;

/// The largest number of objects in a page of a list.
pub const PAGE: u32 = 500;

/// The largest text of a page, in bytes, unless the page has a single object. The objects built from it may take ten
/// times as much memory, and several kinds are listed at one time.
const MAX_BYTES: usize = 4 << 20;
/// The intended size of a page. It is smaller than the limit, so that few pages must be read again.
const AIM: usize = MAX_BYTES / 2;
/// The factor by which a page becomes smaller if it was too large.
const FEWER: u32 = 8;

/// Reads a list page by page, until `look` breaks. All lists are read here: see [`bounded`].
///
/// # Errors
/// If a page cannot be read.
pub async fn each_page<K: Clone + DeserializeOwned + Debug>(
    api: &Api<K>,
    params: ListParams,
    mut look: impl FnMut(Vec<K>) -> ControlFlow<()>,
) -> kube::Result<()> {
    let mut params = params.limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        let next = page.metadata.continue_.filter(|token| !token.is_empty());
        let looked = look(page.items);
        match next.filter(|_| looked.is_continue()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// Reads a whole list. Each object is converted as soon as its page arrives, so that only what `view` keeps is held.
///
/// # Errors
/// If a page cannot be read.
pub async fn all<K: Clone + DeserializeOwned + Debug, V>(
    api: &Api<K>,
    params: ListParams,
    view: impl Fn(K) -> V,
) -> kube::Result<Vec<V>> {
    let mut all = Vec::new();
    let look = |page: Vec<K>| {
        all.extend(page.into_iter().map(&view));
        ControlFlow::Continue(())
    };
    each_page(api, params, look).await?;
    Ok(all)
}

/// Returns the names of all objects of a list.
///
/// # Errors
/// If a page cannot be read.
pub async fn names<K: Clone + DeserializeOwned + Debug>(api: &Api<K>, params: ListParams) -> kube::Result<Vec<String>> {
    let (mut params, mut names) = (params.limit(PAGE), Vec::new());
    loop {
        let page = api.list_metadata(&params).await?;
        names.extend(page.items.into_iter().filter_map(|object| object.metadata.name));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(names),
        }
    }
}

/// A page that was read: the number of objects for which it had room, and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    limit: u32,
    bytes: usize,
}

/// Returns the number of objects for the next page, at most `most`. The number at most doubles, because the next
/// objects may be larger.
fn limit(most: u32, last: Option<Page>) -> u32 {
    let Some(Page { limit, bytes }) = last else { return most };
    let fit = AIM as u64 * u64::from(limit) / bytes.max(1) as u64;
    let fit = u32::try_from(fit).unwrap_or(u32::MAX);
    fit.min(limit.saturating_mul(2)).clamp(1, most.max(1))
}

/// Returns a smaller number after a page was too large.
fn fewer(limit: u32) -> u32 {
    (limit / FEWER).max(1)
}

/// Wraps a client, so that it reads lists in pages that fit, and refuses to read a list without pages. All other
/// requests pass unchanged.
pub fn bounded(client: &Client) -> Client {
    let last: Arc<Mutex<HashMap<String, Page>>> = Arc::default();
    let through = client.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (last, through) = (last.clone(), through.clone());
        async move {
            match wanted(request.method(), request.uri()) {
                Some(most) => page(&through, request, most, &last).await,
                None if is_list(request.method(), request.uri()) => {
                    Err(format!("the list {} is read without pages", request.uri().path()).into())
                }
                None => through.send(request).await.map_err(BoxError::from),
            }
        }
    });
    Client::new(service, client.default_namespace())
}

/// Returns the number of objects that a request for a page wants.
fn wanted(method: &Method, uri: &Uri) -> Option<u32> {
    let of = |name: &'static str| {
        uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name)
    };
    (*method == Method::GET && of("watch").is_none()).then(|| of("limit")?.1.parse().ok()).flatten()
}

/// Checks whether a request reads all objects of a kind, and no watch, object or part of one.
fn is_list(method: &Method, uri: &Uri) -> bool {
    let parts: Vec<_> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
    let of_kind = match parts.as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        _ => return false,
    };
    let is_watch = uri.query().unwrap_or_default().split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"));
    let is_whole = matches!(of_kind, [_] | ["namespaces", _, _]) && !matches!(of_kind, [.., "status" | "finalize"]);
    *method == Method::GET && is_whole && !is_watch
}

/// Returns the same request for another number of objects.
fn with_limit(uri: &Uri, limit: u32) -> Result<Uri, http::Error> {
    let pairs = uri.query().unwrap_or_default().split('&').map(|pair| match pair.split_once('=') {
        Some(("limit", _)) => format!("limit={limit}"),
        _ => pair.to_owned(),
    });
    let query = pairs.collect::<Vec<_>>().join("&");
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(format!("{}?{query}", uri.path()).try_into()?);
    Ok(Uri::from_parts(parts)?)
}

async fn page(
    client: &Client,
    request: Request<Body>,
    most: u32,
    last: &Mutex<HashMap<String, Page>>,
) -> Result<Response<Body>, BoxError> {
    let known = || last.lock().expect("no code panics while it holds the sizes");
    let (parts, _) = request.into_parts();
    let kind = parts.uri.path().to_owned();
    let before = known().get(&kind).copied();
    let mut now = limit(most, before);
    loop {
        let mut request = Request::from_parts(parts.clone(), Body::empty());
        *request.uri_mut() = with_limit(&parts.uri, now)?;
        let response = client.send(request).await?;
        if !response.status().is_success() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let bound = if now == 1 { usize::MAX } else { MAX_BYTES };
        match Limited::new(body, bound).collect().await {
            Ok(whole) => {
                let bytes = whole.to_bytes();
                known().insert(kind, Page { limit: now, bytes: bytes.len() });
                return Ok(Response::from_parts(head, Body::from(bytes)));
            }
            Err(error) if error.is::<LengthLimitError>() => now = fewer(now),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;

    #[test]
    fn the_size_of_a_page_follows_from_the_bytes_of_the_last_one() {
        let after = |limit_: u32, bytes| limit(500, Some(Page { limit: limit_, bytes }));
        assert_eq!(limit(500, None), 500, "no page is known");
        assert_eq!(limit(0, Some(Page { limit: 0, bytes: 0 })), 1, "a page has at least one object");
        assert_eq!(after(500, 1 << 20), 500, "small objects: the requested number");
        assert_eq!(after(500, MAX_BYTES), 250);
        assert_eq!(after(1, 1_500_000), 1, "objects of the largest size");
        assert_eq!(after(1, 600_000), 2, "twice as many at most");
        assert_eq!(after(4, 100), 8, "twice as many at most, however small they were");
        assert_eq!(after(7, 7 * 1_500_000), 1);
        assert_eq!([500, 62, 7, 1].map(fewer), [62, 7, 1, 1]);
    }

    #[test]
    fn pages_of_lists_are_distinguished_from_other_requests() {
        let of = |method: &Method, uri: &str| wanted(method, &uri.parse().unwrap());
        assert_eq!(of(&Method::GET, "/api/v1/pods?&limit=500&continue=x"), Some(500));
        for uri in ["/api/v1/pods", "/api/v1/pods?unlimit=5", "/api/v1/pods?watch=true&limit=500", "/a?limit=x"] {
            assert_eq!(of(&Method::GET, uri), None, "{uri}");
        }
        assert_eq!(of(&Method::DELETE, "/api/v1/pods?limit=500"), None);
        let uri = "https://h:1/api/v1/pods?&limit=500&continue=a%3D&labelSelector=a%2Cb".parse().unwrap();
        let other = with_limit(&uri, 7).unwrap().to_string();
        assert_eq!(other, "https://h:1/api/v1/pods?&limit=7&continue=a%3D&labelSelector=a%2Cb");
    }

    #[test]
    fn a_list_is_told_from_objects_and_watches() {
        let of = |uri: &str| is_list(&Method::GET, &uri.parse().unwrap());
        for list in ["/api/v1/pods", "/api/v1/namespaces", "/api/v1/namespaces/a/pods?fieldSelector=x", "/apis/g/v1/x"]
        {
            assert!(of(list) && !is_list(&Method::POST, &list.parse().unwrap()), "{list}");
        }
        for other in [
            "/api/v1",
            "/apis/g/v1",
            "/version",
            "/api/v1/nodes/n",
            "/api/v1/namespaces/a",
            "/api/v1/namespaces/a/pods/p",
            "/api/v1/namespaces/a/pods/p/log",
            "/api/v1/namespaces/a/status",
            "/api/v1/pods?watch=true&x=y",
        ] {
            assert!(!of(other), "{other}");
        }
    }

    #[tokio::test]
    async fn no_list_is_read_without_pages() {
        let (client, asked) = server(vec![100; 3]);
        let api: Api<PersistentVolumeClaim> = Api::all(bounded(&client));
        let error = api.list(&ListParams::default()).await.unwrap_err();
        assert!(format!("{error:?}").contains("without pages") && asked.lock().unwrap().is_empty(), "{error:?}");
        assert_eq!(all(&api, ListParams::default(), |claim| claim.metadata.name).await.unwrap().len(), 3);
    }

    /// A list elsewhere would fail when it is read. So it does not come that far.
    #[test]
    fn only_this_file_reads_lists() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut folders = vec![root.join("src"), root.join("crates/tool/src")];
        let mut found = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    folders.push(entry);
                } else if entry.extension().is_some_and(|ending| ending == "rs") {
                    let text = std::fs::read_to_string(&entry).unwrap();
                    let program = text.split("#[cfg(test)]").next().unwrap();
                    let has_list = [".list(&", ".list(which"].iter().any(|list| program.contains(list));
                    let has_metadata = program.contains(".list_metadata(") && !program.contains(".limit(1)");
                    found.extend((has_list || has_metadata).then_some(entry));
                }
            }
        }
        found.retain(|path| !path.ends_with("api/pages.rs"));
        assert!(found.is_empty(), "read lists by `pages::all` or `pages::each_page`: {found:?}");
    }

    /// Runs a server of claims with annotations of these sizes in bytes. It records how many objects each request asked
    /// for.
    fn server(sizes: Vec<usize>) -> (Client, Arc<Mutex<Vec<u32>>>) {
        let asked: Arc<Mutex<Vec<u32>>> = Arc::default();
        let noted = asked.clone();
        let answer = move |request: Request<Body>| {
            let limit = wanted(request.method(), request.uri()).unwrap();
            noted.lock().unwrap().push(limit);
            let query = request.uri().query().unwrap_or_default().to_owned();
            let from = query.split('&').find_map(|pair| pair.strip_prefix("continue=")?.parse().ok()).unwrap_or(0usize);
            let until = (from + limit as usize).min(sizes.len());
            let items: Vec<_> = (from..until)
                .map(|n| serde_json::json!({ "metadata": { "name": format!("c{n}"), "annotations": { "a": "x".repeat(sizes[n]) } } }))
                .collect();
            let next = (until < sizes.len()).then(|| until.to_string());
            let list = serde_json::json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaimList",
                "metadata": { "continue": next }, "items": items });
            async move { Ok::<_, Infallible>(Response::new(Body::from(list.to_string().into_bytes()))) }
        };
        (Client::new(tower::service_fn(answer), "n"), asked)
    }

    async fn listed(client: &Client) -> Vec<usize> {
        let api: Api<PersistentVolumeClaim> = Api::all(bounded(client));
        let (mut pages, mut params) = (Vec::new(), ListParams::default().limit(500));
        loop {
            let page = api.list(&params).await.unwrap();
            pages.push(page.items.len());
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return pages,
            }
        }
    }

    #[tokio::test]
    async fn large_objects_are_listed_completely_in_small_pages() {
        // The small objects come first, so that the next page is requested as if all were small.
        let sizes = [vec![100; 600], vec![1_400_000; 20], vec![100; 600]].concat();
        let (client, asked) = server(sizes.clone());
        let pages = listed(&client).await;
        assert_eq!(pages.iter().sum::<usize>(), sizes.len(), "{pages:?}");
        let mut at = 0;
        for page in pages {
            let bytes: usize = sizes[at..at + page].iter().sum();
            assert!(bytes <= MAX_BYTES || page == 1, "{bytes} bytes in a page of {page}");
            at += page;
        }
        assert!(asked.lock().unwrap().len() < 60, "{asked:?}");
    }

    #[tokio::test]
    async fn small_objects_are_listed_in_pages_of_the_requested_size() {
        let (client, asked) = server(vec![100; 1200]);
        assert_eq!(listed(&client).await, [500, 500, 200]);
        assert_eq!(*asked.lock().unwrap(), [500, 500, 500]);
    }
}
