//! The solver's HTTP endpoint: POST with sessions, answers as JSON or as streams that can be resumed, GET for those,
//! DELETE.
//!
//! Written by hand on hyper: an SDK's server would weigh more than the rest of the binary.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::super::witness;
use super::tape::{Recorder, Tape};
use super::tools::{self, Job, Progress, Unfit};
use super::{End, Floor, Seen, lock};

type Body = UnsyncBoxBody<Bytes, Infallible>;

const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const SESSION: &str = "mcp-session-id";
/// Largest request, in bytes.
const MAX_BODY: usize = 1 << 20;
/// How many calls can be resumed: the oldest are forgotten.
const TAPES: usize = 1000;

/// Answers one HTTP request.
pub(super) async fn answer(floor: Arc<Floor>, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    match (&head.method, head.uri.path()) {
        (&Method::POST, "/mcp") => {}
        (&Method::DELETE, "/mcp") => return delete(&floor, &head.headers),
        (&Method::GET, "/mcp") => return resume(&floor, &head.headers),
        (_, "/mcp") => return bare(StatusCode::METHOD_NOT_ALLOWED),
        (&Method::GET, "/mcp/seen") => {
            let seen: Value = lock(&floor.seen).iter().map(witness::written).collect();
            return json_body(StatusCode::OK, &seen);
        }
        _ => return bare(StatusCode::NOT_FOUND),
    }
    let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
        return bare(StatusCode::PAYLOAD_TOO_LARGE);
    };
    match serde_json::from_slice::<Value>(&body.to_bytes()) {
        Ok(message) if message.is_object() => post(floor, &head.headers, message).await,
        _ => refuse(StatusCode::BAD_REQUEST, &Value::Null, (-32700, "the body is not one JSON-RPC message")),
    }
}

async fn post(floor: Arc<Floor>, headers: &HeaderMap, message: Value) -> Response<Body> {
    let id = message["id"].clone();
    let bad = |why| refuse(StatusCode::BAD_REQUEST, &id, (-32600, why));
    let version = headers.get("mcp-protocol-version").map(HeaderValue::as_bytes);
    if version.is_some_and(|version| !VERSIONS.iter().any(|known| known.as_bytes() == version)) {
        return bad("unsupported MCP-Protocol-Version");
    }
    let method = message["method"].as_str().unwrap_or_default();
    if method == "initialize" {
        return initialize(&floor, &message);
    }
    let Some(session) = header(headers, SESSION) else {
        return bad("an Mcp-Session-Id is needed");
    };
    if !lock(&floor.sessions).contains_key(&session) {
        return refuse(StatusCode::NOT_FOUND, &id, (-32001, "no such session"));
    }
    match method {
        "notifications/cancelled" => {
            cancel(&floor, &session, &message["params"]["requestId"]);
            bare(StatusCode::ACCEPTED)
        }
        _ if id.is_null() => bare(StatusCode::ACCEPTED),
        "ping" => result(&id, &json!({})),
        "tools/list" => result(&id, &tools::catalogue()),
        "tools/call" => call(floor, session, headers, message).await,
        _ => refuse(StatusCode::OK, &id, (-32601, "method not found")),
    }
}

fn initialize(floor: &Floor, message: &Value) -> Response<Body> {
    let asked = message["params"]["protocolVersion"].as_str();
    let version = VERSIONS.into_iter().find(|known| Some(*known) == asked).unwrap_or(VERSIONS[0]);
    let session = uuid::Uuid::new_v4().to_string();
    let mut response = result(
        &message["id"],
        &json!({"protocolVersion": version, "capabilities": {"tools": {}},
            "serverInfo": {"name": "demo-solver", "version": env!("CARGO_PKG_VERSION")}}),
    );
    let value = HeaderValue::from_str(&session).expect("a UUID is a header value");
    response.headers_mut().insert(SESSION, value);
    lock(&floor.sessions).insert(session, Default::default());
    response
}

fn delete(floor: &Floor, headers: &HeaderMap) -> Response<Body> {
    let session = header(headers, SESSION).unwrap_or_default();
    match lock(&floor.sessions).remove(&session) {
        Some(calls) => {
            calls.values().for_each(CancellationToken::cancel);
            bare(StatusCode::NO_CONTENT)
        }
        None => bare(StatusCode::NOT_FOUND),
    }
}

fn cancel(floor: &Floor, session: &str, id: &Value) {
    if let Some(call) = lock(&floor.sessions).get(session).and_then(|calls| calls.get(&id.to_string())) {
        call.cancel();
    }
}

/// Starts the call in a task of its own (a client that leaves does not stop it) and answers as it goes.
async fn call(floor: Arc<Floor>, session: String, headers: &HeaderMap, message: Value) -> Response<Body> {
    let id = message["id"].clone();
    let job = match Job::read(&message["params"]) {
        Ok(job) => job,
        Err(Unfit::UnknownTool) => return refuse(StatusCode::OK, &id, (-32602, "unknown tool")),
        Err(Unfit::Arguments(why)) => return result(&id, &tools::failed(why)),
    };
    let streams = header(headers, ACCEPT.as_str()).is_some_and(|accept| accept.contains("text/event-stream"));
    let (tape, recorder) = Tape::new(&session);
    let work = floor.work.clone();
    if streams {
        let mut tapes = lock(&floor.tapes);
        if tapes.len() >= TAPES {
            tapes.pop_front();
        }
        tapes.push_back(tape.clone());
    }
    drop(work.spawn(run(floor, session, message, job, recorder)));
    if streams {
        return event_stream(tape, 0);
    }
    match tape.last().await {
        Some(last) if last.get("id").is_some() => json_body(StatusCode::OK, &last),
        _ => refuse(StatusCode::OK, &id, (-32000, "cancelled")),
    }
}

/// Goes on with the stream of a call whose client lost it; there is no other stream to GET.
fn resume(floor: &Floor, headers: &HeaderMap) -> Response<Body> {
    let session = header(headers, SESSION).unwrap_or_default();
    if !lock(&floor.sessions).contains_key(&session) {
        return bare(StatusCode::NOT_FOUND);
    }
    let Some(event) = header(headers, "last-event-id") else { return bare(StatusCode::METHOD_NOT_ALLOWED) };
    let found = lock(&floor.tapes).iter().find_map(|tape| Some((tape.clone(), tape.place(&session, &event)?)));
    match found {
        Some((tape, heard)) => event_stream(tape, heard),
        None => bare(StatusCode::BAD_REQUEST),
    }
}

/// Works until the end, a cancellation or the cut; the tape ends without an answer after the latter two.
async fn run(floor: Arc<Floor>, session: String, message: Value, job: Job, recorder: Recorder) {
    let (key, token) = (message["id"].to_string(), &message["params"]["_meta"]["progressToken"]);
    let cancelled = CancellationToken::new();
    if let Some(calls) = lock(&floor.sessions).get_mut(&session) {
        calls.insert(key.clone(), cancelled.clone());
    }
    let number = {
        let mut seen = lock(&floor.seen);
        let tool = message["params"]["name"].as_str().unwrap_or_default().to_owned();
        seen.push(Seen { tool, end: End::Running });
        seen.len()
    };
    let report = |step: Progress| {
        if !token.is_null() {
            recorder.say(progress(token, &step));
        }
    };
    let end = tokio::select! {
        done = job.work(number, report) => End::Done(done),
        () = cancelled.cancelled() => End::Cancelled,
        () = floor.work.severed() => End::Cancelled,
    };
    if let Some(calls) = lock(&floor.sessions).get_mut(&session) {
        calls.remove(&key);
    }
    lock(&floor.seen)[number - 1].end = end.clone();
    if let End::Done(done) = end {
        recorder.say(json!({"jsonrpc": "2.0", "id": message["id"], "result": done}));
    }
}

fn progress(token: &Value, step: &Progress) -> Value {
    let message = format!("step {} of {}", step.done, step.total);
    json!({"jsonrpc": "2.0", "method": "notifications/progress",
        "params": {"progressToken": token, "progress": step.done, "total": step.total, "message": message}})
}

/// What a call says after its first `heard` messages.
fn event_stream(tape: Arc<Tape>, heard: usize) -> Response<Body> {
    let mut response = Response::new(StreamBody::new(tape.events(heard)).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

fn result(id: &Value, result: &Value) -> Response<Body> {
    json_body(StatusCode::OK, &json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

fn refuse(status: StatusCode, id: &Value, (code, message): (i32, &str)) -> Response<Body> {
    json_body(status, &json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}))
}

fn json_body(status: StatusCode, message: &Value) -> Response<Body> {
    let mut response = Response::new(Full::from(message.to_string()).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn bare(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Full::default().boxed_unsync());
    *response.status_mut() = status;
    response
}
