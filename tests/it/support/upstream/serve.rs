//! Connections and routing of the scripted upstream.
//!
//! It behaves like the servers of the official SDKs unless a setting says otherwise.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::parsed;
use super::call::Call;
use super::record::Recorded;
use super::reply::{Line, Outflow, Reply};
use super::{Get, Script, Shared, guard, modern};

pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    while let Some(Ok((tcp, _))) = stop.run_until_cancelled(listener.accept()).await {
        shared.connections.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(connection(tcp, shared.clone(), stop.child_token()));
    }
}

async fn connection(tcp: TcpStream, shared: Arc<Shared>, end: CancellationToken) {
    tcp.set_nodelay(true).expect("TCP has no delay");
    let line = Arc::new(Line::new(&tcp, end.clone()));
    let idle = shared.settings.idle;
    let service = {
        let line = line.clone();
        service_fn(move |request| exchange(request, shared.clone(), line.clone()))
    };
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(idle)
        .serve_connection(TokioIo::new(tcp), service);
    drop(end.run_until_cancelled(serving).await);
    line.close(None);
}

async fn exchange(
    request: Request<Incoming>,
    shared: Arc<Shared>,
    line: Arc<Line>,
) -> io::Result<Response<StreamBody<Outflow>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let body = String::from_utf8_lossy(&body).into_owned();
    let request = shared.log.add(Recorded {
        n: 0,
        at: Instant::now(),
        http: head.method.to_string(),
        path: head.uri.to_string(),
        headers: head.headers,
        json: parsed(&body),
        body,
    });
    let (reply, awaited) = Reply::pair(shared.log.clone(), request.n, line, shared.settings.headers.clone());
    tokio::spawn(answer(Call { request, before: 0, reply, shared }));
    awaited.response().await
}

async fn answer(mut call: Call) {
    if guard::has_answered(&mut call) {
        return;
    }
    let settings = &call.shared.settings;
    let off_path = !call.request.path.split('?').next().unwrap_or_default().trim_end_matches('/').ends_with("/mcp");
    if let (true, Some(location)) = (off_path, settings.redirect.clone()) {
        return call.raw(307, &[("location", &location)], "");
    }
    let own = call.shared.addr.to_string();
    if settings.own_host_only && call.request.header("host") != Some(&own) {
        return call.raw(421, &[], "Invalid Host header");
    }
    if let Some((status, text)) = refusal(&call) {
        let body = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": text}});
        return call.raw(status, &[("content-type", "application/json")], body.to_string());
    }
    if let Some((status, code, text)) = call.is_stateless().then(|| modern::refusal(settings, &call.request)).flatten()
    {
        let body = json!({"jsonrpc": "2.0", "id": call.request.json["id"], "error": {"code": code, "message": text}});
        return call.raw(status, &[("content-type", "application/json")], body.to_string());
    }
    match call.request.http.as_str() {
        "POST" => post(call).await,
        "GET" => get(call).await,
        "DELETE" => delete(call),
        _ => call.raw(405, &[("allow", "GET, POST, DELETE")], ""),
    }
}

/// Why a request does not fit the sessions of this server.
fn refusal(call: &Call) -> Option<(u16, &'static str)> {
    if !call.shared.settings.sessions || call.is_stateless() || call.request.method() == "initialize" {
        return None;
    }
    if call.request.http == "GET" && call.shared.settings.get == Get::None {
        return None;
    }
    match call.request.session() {
        None => Some((400, "Bad Request: Mcp-Session-Id is required")),
        Some(id) if !call.shared.state.lock().unwrap().sessions.iter().any(|known| known == id) => {
            Some((404, "Session not found"))
        }
        Some(_) => None,
    }
}

async fn post(mut call: Call) {
    let method = call.request.method().to_owned();
    let shared = call.shared.clone();
    call.before = count(&shared, &method);
    if let Some(script) = shared.settings.methods.get(&method) {
        return script(call).await;
    }
    match method.as_str() {
        "server/discover" if call.is_stateless() => modern::discover(call),
        "subscriptions/listen" if call.is_stateless() => listen(call).await,
        "tools/list" | "tools/call" | "initialize" => known(call, &method).await,
        _ if call.is_stateless() => {
            let id = call.request.id();
            let body =
                format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"Method not found"}}}}"#);
            call.raw(404, &[("content-type", "application/json")], body);
        }
        "" => accepted(call),
        "ping" => call.result(&json!({})),
        name if name.starts_with("notifications/") => call.raw(202, &[], ""),
        _ => call.error(-32601, "Method not found", &Value::Null),
    }
}

async fn known(call: Call, method: &str) {
    match method {
        "tools/list" => list(call),
        "tools/call" => run(call).await,
        _ => initialize(call),
    }
}

/// A subscription: its listener hears what is pushed.
async fn listen(mut call: Call) {
    let (sender, messages) = mpsc::unbounded_channel::<Bytes>();
    let acknowledgement = modern::acknowledgement(&call.request);
    call.event(&acknowledgement.to_string());
    call.shared.state.lock().unwrap().listeners.push((None, sender));
    pass(call, messages).await;
}

/// Takes the answer to a question.
fn accepted(mut call: Call) {
    let key = (call.request.session().map(str::to_owned), call.request.json["id"].to_string());
    if let Some(question) = call.shared.state.lock().unwrap().questions.remove(&key) {
        drop(question.send(call.request.json.clone()));
    }
    call.raw(202, &[], "");
}

fn count(shared: &Shared, kind: &str) -> usize {
    let mut state = shared.state.lock().unwrap();
    let count = state.counts.entry(kind.to_owned()).or_default();
    *count += 1;
    *count - 1
}

/// The ordinary answer to `initialize`; scripts may call it when they have waited long enough.
fn initialize(mut call: Call) {
    let settings = &call.shared.settings;
    let asked = call.request.json["params"]["protocolVersion"].clone();
    let mut result = json!({
        "protocolVersion": settings.version.clone().map_or(asked, Value::String),
        "capabilities": settings.capabilities,
        "serverInfo": {"name": "scripted", "version": "1"},
    });
    if let Some(text) = &settings.instructions {
        result["instructions"] = json!(text);
    }
    if settings.sessions {
        let number = call.shared.issued.fetch_add(1, Ordering::SeqCst);
        let id = format!("session-{number}-{}", call.shared.addr.port());
        call.shared.state.lock().unwrap().sessions.push(id.clone());
        call.header("mcp-session-id", &id);
    }
    call.result(&result);
}

impl Call {
    /// Answers `initialize` as this server does by itself.
    pub fn hello(self) {
        initialize(self);
    }
}

fn list(mut call: Call) {
    let settings = &call.shared.settings;
    let start: usize = call.request.json["params"]["cursor"].as_str().map_or(0, |cursor| cursor.parse().unwrap_or(0));
    let end = settings.tools.len().min(start.saturating_add(settings.page));
    let tools: Vec<_> = settings.tools[start..end].iter().map(|(definition, _)| definition).collect();
    let mut result = json!({"tools": tools});
    if end < settings.tools.len() {
        result["nextCursor"] = json!(end.to_string());
    } else if settings.empty_cursor {
        result["nextCursor"] = json!("");
    }
    call.result(&result);
}

async fn run(mut call: Call) {
    let tool = call.request.tool().to_owned();
    let shared = call.shared.clone();
    call.before = count(&shared, &format!("tools/call {tool}"));
    let found: Option<&Script> =
        shared.settings.tools.iter().find(|(definition, _)| definition["name"] == *tool).map(|(_, script)| script);
    match found {
        Some(script) => script(call).await,
        None => call.error(-32602, &format!("Unknown tool: {tool}"), &Value::Null),
    }
}

async fn get(mut call: Call) {
    let shared = call.shared.clone();
    if let (Some(script), true) = (&shared.settings.resume, call.request.headers.contains_key("last-event-id")) {
        call.before = count(&shared, "resume");
        return script(call).await;
    }
    if shared.settings.get == Get::None {
        return call.raw(405, &[("allow", "POST, DELETE")], "");
    }
    let session = call.request.session().map(str::to_owned);
    let messages = {
        let mut state = shared.state.lock().unwrap();
        state.listeners.retain(|(_, stream)| !stream.is_closed());
        if state.listeners.iter().any(|(known, _)| *known == session) {
            drop(state);
            return call.raw(409, &[], "Conflict: Only one SSE stream is allowed per session");
        }
        let (sender, messages) = mpsc::unbounded_channel::<Bytes>();
        state.listeners.push((session, sender));
        messages
    };
    call.open();
    pass(call, messages).await;
}

async fn pass(mut call: Call, mut messages: mpsc::UnboundedReceiver<Bytes>) {
    loop {
        tokio::select! {
            message = messages.recv() => match message {
                Some(message) => call.bytes(message),
                None => return,
            },
            () = call.reply.gone() => return,
        }
    }
}

fn delete(mut call: Call) {
    let status = call.shared.settings.delete;
    if status < 300 {
        let session = call.request.session().map(str::to_owned);
        let mut state = call.shared.state.lock().unwrap();
        state.sessions.retain(|known| Some(known) != session.as_ref());
        state.listeners.retain(|(known, _)| *known != session);
    }
    call.raw(status, &[], "");
}
