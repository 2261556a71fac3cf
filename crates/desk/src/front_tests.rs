use std::collections::BTreeSet;

use axum::http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::setting::tests::{config, read};

/// A request that makes a volume.
const POST: &str = "POST /volumes HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}";

/// Starts a front before a server with this address.
async fn front(address: &str) -> Front {
    let setting = read(&config("a", &format!("image: i, array-url: '{address}'")), None).unwrap();
    Front::start(&Wanted::parse("array-url").unwrap(), &setting, &Tools::default()).await.unwrap()
}

/// Starts a server that makes the volume 1 for each request.
async fn array() -> Front {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let app = axum::Router::new().fallback(|| async { (StatusCode::CREATED, "{\"id\":1}") });
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap_or_default() });
    front(&format!("http://127.0.0.1:{port}")).await
}

/// Starts a server that repeats what it gets.
async fn echo() -> Front {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut bytes = [0; 64];
            while let Ok(count) = client.read(&mut bytes).await
                && count > 0
            {
                client.write_all(&bytes[..count]).await.unwrap();
            }
        }
    });
    front(&format!("127.0.0.1:{port}")).await
}

/// Sends a text to a front, and returns all that comes back. `ends` says that nothing more will be sent.
async fn ask(front: &Front, text: &str, ends: bool) -> String {
    let address = front.values()[0].1.trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    if ends {
        stream.shutdown().await.unwrap();
    }
    let mut bytes = Vec::new();
    // A line that is cut may end with an error.
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn a_front_of_http_passes_requests_on_and_fails_as_planned() {
    let front = array().await;
    let storage: BTreeSet<String> = ["/volumes".to_owned()].into();
    let left = || front.take_ledger().left(&storage);
    let whole = ask(&front, POST, false).await;
    assert!(whole.starts_with("HTTP/1.1 201") && whole.ends_with("{\"id\":1}"), "{whole}");
    assert_eq!(left(), ["/volumes/1"]);
    for (fault, begin, end, acted) in [
        (Fault::None, "HTTP/1.1 201", "{\"id\":1}", true),
        (Fault::AnswerLost, "", "", true),
        (Fault::Status(503), "HTTP/1.1 503", "\n", false),
        (Fault::Outage(Duration::from_secs(60)), "HTTP/1.1 500", "\n", false),
        (Fault::Cut, "HTTP/1.1 201", "{\"id", true),
        (Fault::Late(Duration::from_millis(1)), "HTTP/1.1 201", "{\"id\":1}", true),
    ] {
        let armed = front.arm(Plan { fault: fault.clone(), at: 1 });
        let answer = ask(&front, POST, false).await;
        assert!(answer.starts_with(begin) && answer.ends_with(end), "{fault:?}: {answer}");
        assert!(!begin.is_empty() || answer.is_empty(), "{fault:?}: {answer}");
        assert_eq!(armed.struck().is_some(), fault != Fault::None, "{fault:?}");
        assert_eq!((armed.requests(), !left().is_empty()), (1, acted), "{fault:?}");
    }
    assert_eq!(front.limits(), None);
}

#[tokio::test]
async fn an_answer_is_held_until_the_plan_ends() {
    let front = array().await;
    let armed = front.arm(Plan { fault: Fault::Held, at: 1 });
    let over = async {
        front.held().await;
        drop(armed);
    };
    let (answer, ()) = tokio::join!(ask(&front, POST, false), over);
    assert_eq!(answer, "");
    // The server has acted.
    assert_eq!(front.take_ledger().left(&["/volumes".to_owned()].into()), ["/volumes/1"]);
    assert!(ask(&front, POST, false).await.starts_with("HTTP/1.1 201"));
}

#[tokio::test]
async fn a_front_without_http_passes_bytes_on_and_says_what_it_cannot_do() {
    let front = echo().await;
    for (fault, expected) in [
        (Fault::None, "hello"),
        (Fault::AnswerLost, ""),
        (Fault::Status(500), ""),
        (Fault::Cut, "he"),
        (Fault::Late(Duration::from_millis(1)), "hello"),
    ] {
        let armed = front.arm(Plan { fault: fault.clone(), at: 1 });
        assert_eq!(ask(&front, "hello", true).await, expected, "{fault:?}");
        assert_eq!(armed.struck(), (fault != Fault::None).then(String::new), "{fault:?}");
    }
    assert!(front.limits().is_some_and(|limits| limits.contains("could answer no request")));
}

#[tokio::test]
async fn a_front_that_has_no_server_says_which_parameter_is_missing() {
    let setting = read(&config("a", "image: i, server: nas"), None).unwrap();
    for (flag, words) in [
        ("array-url", "--front array-url: neither config and class"),
        ("server", "--front server: its value has no port"),
        ("server,port", "have the parameter port"),
    ] {
        let started = Front::start(&Wanted::parse(flag).unwrap(), &setting, &Tools::default()).await;
        let why = started.err().unwrap();
        assert!(why.contains(words), "{flag}: {why}");
    }
}
