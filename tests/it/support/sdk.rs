//! A server and a client of the official Rust SDK, as their users write them.
//!
//! The scripted upstream knows what taskgate does; these two do not, and read and write MCP in their own way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ErrorData, Implementation, JsonObject,
    ProgressNotificationParam, ProtocolVersion, RequestMetaObject,
};
#[allow(deprecated)]
use rmcp::model::{ListRootsResult, Root};
use rmcp::service::{NotificationContext, RequestContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, Json, Peer, RoleClient, RoleServer};
use rmcp::{schemars, tool, tool_router};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Gate, Latch, soon};

/// How a client begins: with `initialize`.
pub const HANDSHAKE: ClientLifecycleMode = ClientLifecycleMode::Initialize;

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct Spoken {
    text: String,
}

/// What the structured tool answers.
#[derive(Serialize, schemars::JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct Mesh {
    cells: u64,
}

/// What the tools have seen, and the door that the slow ones wait at.
#[derive(Clone)]
pub struct Seen {
    /// Opens the slow tools.
    pub door: Latch,
    slow: Arc<AtomicUsize>,
    cancelled: Arc<AtomicUsize>,
}

impl Seen {
    /// How often a slow tool was called.
    pub fn slow(&self) -> usize {
        self.slow.load(Ordering::SeqCst)
    }

    /// How many calls of slow tools were cancelled.
    pub fn cancelled(&self) -> usize {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Waits at the door unless the call is cancelled.
    async fn wait(&self, cancelled: &CancellationToken) {
        self.slow.fetch_add(1, Ordering::SeqCst);
        tokio::select! {
            () = self.door.passed() => {}
            () = cancelled.cancelled() => { self.cancelled.fetch_add(1, Ordering::SeqCst); }
        }
    }
}

#[derive(Clone)]
struct Solver {
    seen: Seen,
}

#[tool_router(server_handler)]
impl Solver {
    #[tool(description = "Says it back.")]
    async fn fast(&self, Parameters(Spoken { text }): Parameters<Spoken>) -> String {
        text
    }

    #[tool(description = "Solves slowly.")]
    async fn slow(
        &self,
        Parameters(Spoken { text }): Parameters<Spoken>,
        context: RequestContext<RoleServer>,
    ) -> String {
        self.seen.wait(&context.ct).await;
        format!("solved {text}")
    }

    #[tool(description = "Meshes slowly.")]
    async fn mesh(&self, context: RequestContext<RoleServer>) -> Json<Mesh> {
        self.seen.wait(&context.ct).await;
        Json(Mesh { cells: 9_007_199_254_740_993 })
    }

    #[tool(description = "Fails slowly.")]
    async fn fail(&self, context: RequestContext<RoleServer>) -> Result<String, String> {
        self.seen.wait(&context.ct).await;
        Err("did not converge".to_owned())
    }

    #[tool(description = "Asks the client, at once or late.")]
    #[allow(deprecated)] // there is no other question without more features of the SDK
    async fn ask(
        &self,
        Parameters(Spoken { text }): Parameters<Spoken>,
        peer: Peer<RoleServer>,
        context: RequestContext<RoleServer>,
    ) -> String {
        if text == "late" {
            self.seen.wait(&context.ct).await;
        }
        match peer.list_roots().await {
            Ok(answer) => answer.roots.first().map_or("none".to_owned(), |root| root.uri.clone()),
            Err(error) => format!("declined: {error}"),
        }
    }

    #[tool(description = "Says that the list of tools has changed.")]
    async fn change(&self, peer: Peer<RoleServer>) -> String {
        format!("{:?}", peer.notify_tool_list_changed().await)
    }

    #[tool(description = "Reports, then waits.")]
    async fn report(
        &self,
        meta: RequestMetaObject,
        peer: Peer<RoleServer>,
        context: RequestContext<RoleServer>,
    ) -> String {
        if let Some(token) = meta.get_progress_token() {
            for step in 1..=3 {
                let progress = ProgressNotificationParam::new(token.clone(), f64::from(step)).with_total(3.0);
                drop(peer.notify_progress(progress.with_message(format!("step {step}"))).await);
            }
        }
        self.seen.wait(&context.ct).await;
        "reported".to_owned()
    }
}

/// A running server of the SDK; it stops when dropped.
pub struct Server {
    /// Its endpoint.
    pub url: String,
    /// What its tools have seen.
    pub seen: Seen,
    _stop: DropGuard,
}

impl Server {
    /// As its users start it: sessions and event streams.
    pub async fn start() -> Self {
        Self::configured(StreamableHttpServerConfig::default()).await
    }

    /// Without sessions, answering JSON.
    pub async fn plain() -> Self {
        let config = StreamableHttpServerConfig::default();
        Self::configured(config.with_legacy_session_mode(false).with_json_response(true)).await
    }

    async fn configured(config: StreamableHttpServerConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let url = format!("http://{}/mcp", listener.local_addr().expect("it is bound"));
        let seen = Seen { door: Latch::new(), slow: Arc::default(), cancelled: Arc::default() };
        let stop = CancellationToken::new();
        let solver = Solver { seen: seen.clone() };
        let sessions = Arc::new(LocalSessionManager::default());
        let config = config.with_cancellation_token(stop.clone());
        let service = StreamableHttpService::new(move || Ok(solver.clone()), sessions, config);
        let stopped = stop.clone();
        tokio::spawn(stopped.run_until_cancelled_owned(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let service = TowerToHyperService::new(service.clone());
                let serve = async move {
                    let builder = auto::Builder::new(TokioExecutor::new());
                    drop(builder.serve_connection(TokioIo::new(socket), service).await);
                };
                tokio::spawn(serve);
            }
        }));
        Self { url, seen, _stop: stop.drop_guard() }
    }
}

/// The client's side of the SDK: keeps the progress it was told.
#[derive(Clone)]
pub struct User {
    config: ClientConfig,
    /// How often it was told of progress.
    pub progress: Arc<AtomicUsize>,
    /// How often it was asked something.
    pub asked: Arc<AtomicUsize>,
    /// How often it was told that the list of tools has changed.
    pub changes: Arc<AtomicUsize>,
}

impl User {
    /// A client that knows nothing of tasks.
    pub fn new() -> Self {
        Self::with(ClientCapabilities::default())
    }

    /// A client with these capabilities.
    pub fn with(capabilities: ClientCapabilities) -> Self {
        let config = ClientConfig::new(capabilities, Implementation::new("user", "1"));
        let config = config.with_protocol_version(ProtocolVersion::V_2025_11_25);
        Self { config, progress: Arc::default(), asked: Arc::default(), changes: Arc::default() }
    }

    /// Connects to taskgate.
    pub async fn connect(&self, gate: &Gate, mode: ClientLifecycleMode) -> RunningService<RoleClient, Self> {
        let transport = StreamableHttpClientTransport::from_uri(format!("http://{}/mcp", gate.addr));
        soon("the hello", self.clone().serve_with_lifecycle(transport, mode)).await.expect("they understand each other")
    }
}

impl ClientHandler for User {
    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }

    /// Thinks longer than any threshold of these stories.
    #[allow(deprecated)]
    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(super::ms(700)).await;
        Ok(ListRootsResult::new(vec![Root::new("file:///here")]))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    async fn on_progress(&self, _: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.fetch_add(1, Ordering::SeqCst);
    }
}

/// A call of a tool with these arguments.
pub fn call(tool: &'static str, arguments: Value) -> CallToolRequestParams {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    CallToolRequestParams::new(tool).with_arguments(JsonObject::from_iter(arguments))
}

/// The text of a content block.
pub fn text(result: &CallToolResult, block: usize) -> &str {
    &result.content[block].as_text().expect("text").text
}
