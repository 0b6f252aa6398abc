//! A headless Chromium, driven over a pipe: no port, no other program between.

use super::PATIENCE;
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Instant,
};

/// A browser with one page; ended when dropped.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: String,
    last: u64,
    /// What the page complained about: exceptions, and what its policy or the network kept from it.
    complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    #[track_caller]
    pub(crate) fn start() -> Self {
        let profile = tempfile::tempdir().expect("a temporary directory");
        // The browser reads messages at descriptor 3 and writes them at 4.
        let script = "exec chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
            --disable-background-networking --disable-component-update --disable-sync --no-first-run \
            --remote-debugging-pipe --user-data-dir=\"$0\" about:blank 3<&0 4>&1 0</dev/null 1>/dev/null";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .arg(profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh starts");
        let to = child.stdin.take().expect("piped");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, from) = channel();
        thread::spawn(move || {
            loop {
                let mut message = Vec::new();
                match output.read_until(0, &mut message) {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => return,
                }
                message.pop();
                let value = serde_json::from_slice(&message).expect("JSON");
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        let session = String::new();
        let complaints = Vec::new();
        let mut browser = Self { child, to, from, session, last: 0, complaints, _profile: profile };
        let targets = browser.call("Target.getTargets", &json!({}));
        let targets = targets["targetInfos"].as_array().expect("a list").clone();
        let page = targets.iter().find(|target| target["type"] == "page").expect("a page");
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &attach);
        let session = attached["sessionId"].as_str().expect("a session");
        session.clone_into(&mut browser.session);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Calls a method of the browser and waits for its result.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        let sent = write!(self.to, "{message}\0").and_then(|()| self.to.flush());
        sent.expect("chromium runs: `.ci/setup` installs it");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let read = self.from.recv_timeout(left);
            let answer = read.expect("chromium answers: `.ci/setup` installs it");
            if answer["id"] == self.last {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            let complaint = match answer["method"].as_str() {
                Some("Runtime.exceptionThrown") => &answer["params"]["exceptionDetails"],
                Some("Log.entryAdded") => &answer["params"]["entry"],
                _ => continue,
            };
            self.complaints.push(complaint.to_string());
        }
    }

    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", &json!({ "url": url }));
    }

    /// Returns the value of an expression in the page.
    #[track_caller]
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", &params);
        let thrown = &result["exceptionDetails"];
        assert!(thrown.is_null(), "{expression}: {thrown}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true in the page.
    #[track_caller]
    pub(crate) fn wait(&mut self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        let guarded = format!(
            "(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()"
        );
        while self.value(&guarded) != true {
            if Instant::now() > deadline {
                let text = self.value("document.body.innerText");
                panic!(
                    "never: {expression}\n{}\n{:?}",
                    text.as_str().unwrap_or(""),
                    self.complaints
                );
            }
            thread::park_timeout(std::time::Duration::from_millis(50));
        }
    }

    /// Presses a key in whatever has the focus.
    pub(crate) fn press(&mut self, key: &str, text: &str) {
        for kind in ["keyDown", "keyUp"] {
            let code = if key == "Enter" { 13 } else { 9 };
            let params =
                json!({ "type": kind, "key": key, "text": text, "windowsVirtualKeyCode": code });
            self.call("Input.dispatchKeyEvent", &params);
        }
    }

    /// Gives the page this width.
    pub(crate) fn resize(&mut self, width: u32) {
        let params =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", &params);
    }

    pub(crate) fn complaints(&self) -> &[String] {
        &self.complaints
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends its own processes.
        drop(write!(self.to, "{{\"id\":0,\"method\":\"Browser.close\"}}\0"));
        drop(self.to.flush());
        let deadline = Instant::now() + std::time::Duration::from_secs(10);
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            super::pause();
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
