//! A headless Chromium, driven by its DevTools protocol over a pair of pipes.

use std::process::Stdio;
use std::time::Instant;

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::wait::{GUARD, pause};

/// A screen on which a page is shown.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// The width in pixels.
    pub width: u32,
    /// The colour scheme that the reader prefers: `light` or `dark`.
    pub scheme: &'static str,
    /// Scripts run.
    pub scripts: bool,
}

/// A browser with one page.
pub struct Browser {
    /// Kills the browser when it is dropped.
    _process: Child,
    commands: ChildStdin,
    messages: BufReader<ChildStdout>,
    session: Option<String>,
    sent: u64,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts Debian's Chromium.
    pub async fn start() -> Browser {
        let profile = tempfile::tempdir().unwrap();
        // The browser reads commands from the file descriptor 3 and writes messages to 4.
        let shell = "exec chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-lcd-text --hide-scrollbars \
            --remote-debugging-pipe --user-data-dir=\"$0\" about:blank 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut process = Command::new("sh")
            .args(["-c", shell])
            .arg(profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (commands, messages) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let messages = BufReader::new(messages);
        let mut browser = Browser { _process: process, commands, messages, session: None, sent: 0, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" })).await;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach).await;
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        browser
    }

    /// Sends a command that must succeed, and returns its result.
    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.tried(method, params).await.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Sends a command, and returns its result or its error. Other messages are ignored.
    async fn tried(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.sent += 1;
        let mut command = json!({ "id": self.sent, "method": method, "params": params });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let mut text = command.to_string().into_bytes();
        text.push(0);
        self.commands.write_all(&text).await.expect("chromium runs: scripts/setup.sh --test installs it");
        let answer = async {
            loop {
                let mut text = Vec::new();
                self.messages.read_until(0, &mut text).await.unwrap();
                assert_eq!(text.pop(), Some(0), "chromium ended: scripts/setup.sh --test installs it");
                let message: Value = serde_json::from_slice(&text).unwrap();
                if message["id"] == self.sent {
                    return message;
                }
            }
        };
        let answer = tokio::time::timeout(GUARD, answer).await;
        let answer = answer.unwrap_or_else(|_| panic!("{method}: chromium does not answer"));
        match answer.get("error") {
            Some(error) => Err(error.clone()),
            None => Ok(answer["result"].clone()),
        }
    }

    /// Opens an address on a screen, and waits until its page is loaded.
    pub async fn open(&mut self, address: &str, screen: Screen) {
        let Screen { width, scheme, scripts } = screen;
        let metrics = json!({ "width": width, "height": 920, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", metrics).await;
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features })).await;
        self.call("Emulation.setScriptExecutionDisabled", json!({ "value": !scripts })).await;
        // The page of before may have the same address.
        for address in ["about:blank", address] {
            let opened = self.call("Page.navigate", json!({ "url": address })).await;
            assert!(opened.get("errorText").is_none(), "{address}: {opened}");
            let loaded = format!("document.readyState === 'complete' && location.href === {}", json!(address));
            self.value_when(&format!("{address} is loaded"), &loaded).await;
        }
    }

    /// Waits until an expression in the page is true.
    pub async fn value_when(&mut self, what: &str, expression: &str) {
        let began = Instant::now();
        loop {
            let value = self.value(expression).await;
            if value == true {
                return;
            }
            assert!(began.elapsed() < GUARD, "{what}: {value}");
            tokio::time::sleep(pause(began.elapsed())).await;
        }
    }

    /// Returns the value of an expression in the page. A page that is replaced meanwhile answers with an error.
    pub async fn value(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let began = Instant::now();
        let result = loop {
            match self.tried("Runtime.evaluate", params.clone()).await {
                Ok(result) => break result,
                Err(error) => assert!(began.elapsed() < GUARD, "{expression}: {error}"),
            }
            tokio::time::sleep(pause(began.elapsed())).await;
        };
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Returns the page as a PNG: all of it, or as much as the screen shows.
    pub async fn screenshot(&mut self, whole: bool) -> Vec<u8> {
        let params = json!({ "format": "png", "captureBeyondViewport": whole });
        let result = self.call("Page.captureScreenshot", params).await;
        let ByteString(png) = serde_json::from_value(result["data"].clone()).unwrap();
        png
    }
}
