//! A scripted MCP server over loopback that writes down everything it sees.
//!
//! No ready-made mock drips events, cuts bodies or loses sessions; every tool here is an async function that can.

mod call;
pub mod guard;
mod modern;
mod record;
mod reply;
pub mod script;
mod serve;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Latch;
pub use call::Call;
pub use record::{Log, Recorded, id_of};
pub use script::Script;

/// Whether the server has a GET stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Get {
    /// 405, as servers without one.
    None,
    /// One per session, 409 for a second.
    Stream,
}

pub(super) struct Settings {
    sessions: bool,
    sse: bool,
    version: Option<String>,
    capabilities: Value,
    instructions: Option<String>,
    tools: Vec<(Value, Script)>,
    page: usize,
    empty_cursor: bool,
    get: Get,
    delete: u16,
    headers: HeaderMap,
    methods: HashMap<String, Script>,
    resume: Option<Script>,
    redirect: Option<String>,
    own_host_only: bool,
    idle: Duration,
    modern: bool,
    native: bool,
    both: bool,
    guard: Option<&'static str>,
    padding: Option<usize>,
}

#[derive(Default)]
pub(super) struct State {
    sessions: Vec<String>,
    questions: HashMap<(Option<String>, String), oneshot::Sender<Value>>,
    listeners: Vec<(Option<String>, mpsc::UnboundedSender<Bytes>)>,
    counts: HashMap<String, usize>,
}

pub(super) struct Shared {
    settings: Settings,
    addr: SocketAddr,
    log: Arc<Log>,
    state: Mutex<State>,
    connections: AtomicUsize,
    issued: AtomicUsize,
}

/// A running server; it stops when dropped. Dereferences to its [`Log`].
pub struct Upstream {
    shared: Arc<Shared>,
    _stop: DropGuard,
}

impl Upstream {
    /// A server with sessions, JSON answers and no tools.
    pub fn builder() -> Builder {
        Builder(Settings {
            sessions: true,
            sse: false,
            version: None,
            capabilities: json!({"tools": {}}),
            instructions: None,
            tools: Vec::new(),
            page: usize::MAX,
            empty_cursor: false,
            get: Get::None,
            delete: 200,
            headers: HeaderMap::new(),
            methods: HashMap::new(),
            resume: None,
            redirect: None,
            own_host_only: false,
            idle: Duration::from_secs(60),
            modern: false,
            native: false,
            both: false,
            guard: None,
            padding: None,
        })
    }

    /// A server whose tool `slow` says `text` when the test opens the latch.
    pub async fn holding(text: &'static str) -> (Self, Latch) {
        let latch = Latch::new();
        (Self::builder().tool("slow", script::held(&latch, text)).start().await, latch)
    }

    /// A server whose tool `slow` accepts each call at once, and says `text` when the test opens the latch.
    pub async fn accepting(text: &'static str) -> (Self, Latch) {
        let latch = Latch::new();
        (Self::builder().tool("slow", script::accepted(&latch, text)).start().await, latch)
    }

    /// A server whose tool `solve` can be resumed and whose tool `plain` cannot; both answer when the latch opens.
    pub fn solver(latch: &Latch) -> Builder {
        Self::builder()
            .tool("solve", script::resumable(latch))
            .tool("plain", script::held(latch, "plain end"))
            .resume(script::resumed(latch))
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.shared.addr
    }

    /// Its endpoint.
    pub fn url(&self) -> String {
        self.url_at("/mcp")
    }

    /// Another path on it.
    pub fn url_at(&self, path: &str) -> String {
        format!("http://{}{path}", self.shared.addr)
    }

    /// How many connections it has accepted.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Sessions that are alive.
    pub fn sessions(&self) -> Vec<String> {
        self.shared.state.lock().unwrap().sessions.clone()
    }

    /// Forgets every session, as a restart does.
    pub fn forget_sessions(&self) {
        self.shared.state.lock().unwrap().sessions.clear();
    }

    /// How many GET streams are open now.
    pub fn listeners(&self) -> usize {
        let mut state = self.shared.state.lock().unwrap();
        state.listeners.retain(|(_, stream)| !stream.is_closed());
        state.listeners.len()
    }

    /// The ids of questions that it has asked and nobody has answered.
    pub fn hears(&self) -> Vec<String> {
        self.shared.state.lock().unwrap().questions.keys().map(|(_, id)| id.clone()).collect()
    }

    /// Ends every open GET stream.
    pub fn hang_up(&self) {
        self.shared.state.lock().unwrap().listeners.clear();
    }

    /// Sends text on every open GET stream.
    pub fn push_text(&self, text: &str) {
        for (_, stream) in &self.shared.state.lock().unwrap().listeners {
            drop(stream.send(Bytes::from(text.to_owned())));
        }
    }

    /// Sends a message on every open GET stream.
    pub fn push(&self, message: &Value) {
        self.push_text(&format!("data: {message}\n\n"));
    }
}

impl Deref for Upstream {
    type Target = Log;

    fn deref(&self) -> &Log {
        &self.shared.log
    }
}

/// A server that is being described.
pub struct Builder(Settings);

impl Builder {
    /// Adds a tool.
    pub fn tool(self, name: &str, script: Script) -> Self {
        self.tool_with(name, &json!({}), script)
    }

    /// Adds a tool with more in its definition.
    pub fn tool_with(mut self, name: &str, more: &Value, script: Script) -> Self {
        let mut definition =
            json!({"name": name, "description": format!("{name}."), "inputSchema": {"type": "object"}});
        let more = more.as_object().expect("a definition is an object").clone();
        definition.as_object_mut().expect("written above").extend(more);
        self.0.tools.push((definition, script));
        self
    }

    /// Answers a JSON-RPC method by a script of its own.
    pub fn on(mut self, method: &str, script: Script) -> Self {
        self.0.methods.insert(method.to_owned(), script);
        self
    }

    /// Issues no session ids and asks for none.
    pub fn without_sessions(mut self) -> Self {
        self.0.sessions = false;
        self
    }

    /// Answers as event streams.
    pub fn sse(mut self) -> Self {
        self.0.sse = true;
        self
    }

    /// Negotiates this version whatever was asked for.
    pub fn version(mut self, version: &str) -> Self {
        self.0.version = Some(version.to_owned());
        self
    }

    /// Declares these capabilities.
    pub fn capabilities(mut self, capabilities: Value) -> Self {
        self.0.capabilities = capabilities;
        self
    }

    /// Has instructions for the model.
    pub fn instructions(mut self, text: &str) -> Self {
        self.0.instructions = Some(text.to_owned());
        self
    }

    /// Lists that many tools per page.
    pub fn page(mut self, tools: usize) -> Self {
        self.0.page = tools;
        self
    }

    /// Ends its list with `"nextCursor": ""`.
    pub fn empty_cursor(mut self) -> Self {
        self.0.empty_cursor = true;
        self
    }

    /// Has GET streams.
    pub fn get(mut self, get: Get) -> Self {
        self.0.get = get;
        self
    }

    /// Answers GET with `Last-Event-ID` by a script.
    pub fn resume(mut self, script: Script) -> Self {
        self.0.resume = Some(script);
        self
    }

    /// Answers DELETE with this status.
    pub fn delete(mut self, status: u16) -> Self {
        self.0.delete = status;
        self
    }

    /// Adds a header to every answer.
    pub fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.0.headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        self
    }

    /// Answers every path but `/mcp` with 307 to `location`.
    pub fn redirect(mut self, location: &str) -> Self {
        self.0.redirect = Some(location.to_owned());
        self
    }

    /// Refuses requests whose `Host` is not its own.
    pub fn own_host_only(mut self) -> Self {
        self.0.own_host_only = true;
        self
    }

    /// Closes a connection after this long without a request.
    pub fn idle(mut self, idle: Duration) -> Self {
        self.0.idle = idle;
        self
    }

    /// Starts it on a free port.
    pub async fn start(self) -> Upstream {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let shared = Arc::new(Shared {
            settings: self.0,
            addr: listener.local_addr().expect("a bound listener has an address"),
            log: Arc::new(Log::new()),
            state: Mutex::default(),
            connections: AtomicUsize::new(0),
            issued: AtomicUsize::new(0),
        });
        let stop = CancellationToken::new();
        tokio::spawn(serve::accept(listener, shared.clone(), stop.clone()));
        Upstream { shared, _stop: stop.drop_guard() }
    }
}
