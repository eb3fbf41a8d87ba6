//! What the scripted upstream has seen.
//!
//! Most stories end with a question to this log: how many calls, with which headers, cancelled or not.

use std::sync::Mutex;

use http::HeaderMap;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::Instant;

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its place in the order of arrival, from 0.
    pub n: usize,
    /// When its body was complete.
    pub at: Instant,
    /// The HTTP method.
    pub http: String,
    /// Path and query.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body as text.
    pub body: String,
    /// Its body as JSON, `Null` if it is none.
    pub json: Value,
}

#[derive(Deserialize)]
struct Ids<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
}

/// The JSON text of a message's id, empty if there is none.
pub fn id_of(message: &str) -> String {
    let ids = serde_json::from_str::<Ids<'_>>(message).ok();
    ids.and_then(|ids| ids.id.map(|id| id.get().to_owned())).unwrap_or_default()
}

impl Recorded {
    /// The JSON-RPC method, empty if there is none.
    pub fn method(&self) -> &str {
        self.json["method"].as_str().unwrap_or_default()
    }

    /// The JSON text of the id, empty if there is none.
    pub fn id(&self) -> String {
        id_of(&self.body)
    }

    /// The tool that is called, empty if none is.
    pub fn tool(&self) -> &str {
        if self.method() == "tools/call" { self.json["params"]["name"].as_str().unwrap_or_default() } else { "" }
    }

    /// A header's only value.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let first = values.next()?;
        assert!(values.next().is_none(), "{name} came twice: {:?}", self.headers);
        Some(first.to_str().expect("headers of these tests are ASCII"))
    }

    /// The session it names.
    pub fn session(&self) -> Option<&str> {
        self.header("mcp-session-id")
    }
}

/// Everything seen so far, in order.
#[derive(Debug)]
pub struct Log {
    requests: Mutex<Vec<Recorded>>,
    disconnects: Mutex<Vec<usize>>,
    changes: watch::Sender<()>,
}

impl Log {
    pub(super) fn new() -> Self {
        Self { requests: Mutex::default(), disconnects: Mutex::default(), changes: watch::Sender::new(()) }
    }

    pub(super) fn add(&self, mut request: Recorded) -> Recorded {
        let mut requests = self.requests.lock().unwrap();
        request.n = requests.len();
        requests.push(request.clone());
        drop(requests);
        self.changes.send_replace(());
        request
    }

    pub(super) fn disconnected(&self, n: usize) {
        self.disconnects.lock().unwrap().push(n);
        self.changes.send_replace(());
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// All requests.
    pub fn all(&self) -> Vec<Recorded> {
        self.requests.lock().unwrap().clone()
    }

    /// Requests (and notifications) with this JSON-RPC method.
    pub fn of(&self, method: &str) -> Vec<Recorded> {
        self.all().into_iter().filter(|request| request.method() == method).collect()
    }

    /// Requests with this HTTP method.
    pub fn http(&self, method: &str) -> Vec<Recorded> {
        self.all().into_iter().filter(|request| request.http == method).collect()
    }

    /// Calls of a tool.
    pub fn calls(&self, tool: &str) -> Vec<Recorded> {
        self.all().into_iter().filter(|request| request.tool() == tool).collect()
    }

    /// Cancellations by notification.
    pub fn cancels(&self) -> Vec<Recorded> {
        self.of("notifications/cancelled")
    }

    /// GETs that take up a stream.
    pub fn resumes(&self) -> Vec<Recorded> {
        self.http("GET").into_iter().filter(|get| get.header("last-event-id").is_some()).collect()
    }

    /// Answers to whatever was asked.
    pub fn answers(&self) -> Vec<Recorded> {
        self.http("POST").into_iter().filter(|message| message.method().is_empty()).collect()
    }

    /// Answers to a question with this id.
    pub fn answers_to(&self, question: &Value) -> Vec<Recorded> {
        self.answers().into_iter().filter(|message| message.json["id"] == *question).collect()
    }

    /// Requests whose sender left before their answer was complete.
    pub fn disconnects(&self) -> Vec<Recorded> {
        let all = self.all();
        self.disconnects.lock().unwrap().iter().map(|&n| all[n].clone()).collect()
    }
}
