//! The demo's solver: an ordinary MCP server whose tools take their time.
//!
//! It speaks the handshake era over Streamable HTTP, with sessions, and knows nothing of tasks, so that what the
//! demo shows is what an unmodified server gets. It remembers what it saw: the flows compare with that.

mod endpoint;
mod tape;
mod tools;

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::tape::Tape;
use crate::shutdown::Work;

/// How long the listener rests after it could not accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// A running solver. It ends when the [`Work`] it was started with is cut.
pub(super) struct Solver {
    addr: SocketAddr,
    #[cfg(test)]
    floor: Arc<Floor>,
}

/// One call as the solver saw it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// The tool.
    pub(super) tool: String,
    /// Where the call stands.
    pub(super) end: End,
}

/// Where a call stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum End {
    /// Still at it.
    Running,
    /// This `CallToolResult` was sent.
    Done(Value),
    /// `notifications/cancelled` named it.
    Cancelled,
}

/// What all connections share.
#[derive(Default)]
struct Floor {
    work: Work,
    /// By session id: the calls in flight, by the text of their JSON-RPC id.
    sessions: Mutex<HashMap<String, HashMap<String, CancellationToken>>>,
    seen: Mutex<Vec<Seen>>,
    /// What calls said whose streams can be resumed, oldest first.
    tapes: Mutex<VecDeque<Arc<Tape>>>,
}

impl Solver {
    /// Listens on `addr`, or on a free loopback port.
    ///
    /// # Errors
    /// When the port cannot be bound.
    pub(super) async fn start(work: &Work, addr: Option<SocketAddr>) -> std::io::Result<Self> {
        let addr = addr.unwrap_or_else(|| (std::net::Ipv4Addr::LOCALHOST, 0).into());
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        let floor = Arc::new(Floor { work: work.clone(), ..Floor::default() });
        drop(work.spawn(accept(listener, floor.clone())));
        Ok(Self {
            addr,
            #[cfg(test)]
            floor,
        })
    }

    /// Where it listens.
    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.addr)
    }

    /// Every call so far, oldest first.
    #[cfg(test)]
    pub(super) fn seen(&self) -> Vec<Seen> {
        lock(&self.floor.seen).clone()
    }
}

async fn accept(listener: TcpListener, floor: Arc<Floor>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = floor.work.severed() => return,
        };
        match accepted {
            Ok((stream, _)) => drop(floor.work.spawn(serve(stream, floor.clone()))),
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve(stream: tokio::net::TcpStream, floor: Arc<Floor>) {
    let service = service_fn(|request| {
        let floor = floor.clone();
        async move { Ok::<_, Infallible>(endpoint::answer(floor, request).await) }
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // A client that breaks off is no news to a server.
        _ = connection => {}
        () = floor.work.severed() => {}
    }
}

/// Locks, also after a panic elsewhere: nothing here is left half-written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::client::{Ability, Client};
    use super::*;

    async fn solver() -> (Work, Solver) {
        let work = Work::new();
        let solver = Solver::start(&work, None).await.unwrap();
        (work, solver)
    }

    async fn connected() -> (Work, Solver, Client) {
        let (work, solver) = solver().await;
        let client = Client::connect(&solver.url(), Ability::Plain).await.unwrap();
        (work, solver, client)
    }

    #[tokio::test]
    async fn lists_its_tools() {
        let (_work, _solver, mut client) = connected().await;
        let answer = client.request("tools/list", json!({})).await.unwrap();
        let tools = answer.result().unwrap()["tools"].as_array().unwrap().clone();
        let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["solve", "simulate", "mesh", "diverge"]);
        assert_eq!(tools[2]["outputSchema"]["type"], "object");
    }

    #[tokio::test]
    async fn each_tool_answers_as_it_says() {
        let (_work, solver, mut client) = connected().await;
        let solved = client.call("solve", json!({"seconds": 0.01})).await.unwrap();
        assert!(solved.took >= Duration::from_millis(10));
        assert_eq!(solver.seen()[0].end, End::Done(solved.result().unwrap().clone()));

        let mesh = client.call("mesh", json!({"cells": 12})).await.unwrap();
        let mesh = mesh.result().unwrap();
        assert_eq!(mesh["structuredContent"]["cells"], 12);
        let text: Value = serde_json::from_str(mesh["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, mesh["structuredContent"]);

        let failed = client.call("diverge", json!({"seconds": 0})).await.unwrap();
        assert_eq!(failed.result().unwrap()["isError"], true);
        let wrong = client.call("solve", json!({"seconds": "two"})).await.unwrap();
        assert_eq!(wrong.result().unwrap()["isError"], true);
        let unknown = client.call("fly", json!({})).await.unwrap();
        assert!(unknown.result().unwrap_err().contains("-32602"));
    }

    #[tokio::test]
    async fn reports_progress_with_the_callers_token_only() {
        let (_work, solver, mut client) = connected().await;
        let params = json!({"name": "simulate", "arguments": {"steps": 3, "seconds": 0.03},
            "_meta": {"progressToken": "mine"}});
        let answer = client.request("tools/call", params).await.unwrap();
        let done: Vec<_> = answer.notifications.iter().map(|note| note["params"]["progress"].clone()).collect();
        assert_eq!(done, [json!(1), json!(2), json!(3)]);
        assert!(answer.notifications.iter().all(|note| note["params"]["progressToken"] == "mine"));
        assert_eq!(solver.seen()[0].end, End::Done(answer.result().unwrap().clone()));

        let silent = client.call("simulate", json!({"steps": 3, "seconds": 0.03})).await.unwrap();
        assert!(silent.notifications.is_empty());
    }

    #[tokio::test]
    async fn a_cancelled_call_ends_and_is_remembered() {
        let (_work, solver, client) = connected().await;
        for (tool, arguments) in [("solve", json!({"seconds": 60})), ("simulate", json!({"steps": 2, "seconds": 60}))] {
            let calls = solver.seen().len();
            let mut caller = client.clone();
            let cancel = async {
                while solver.seen().len() == calls {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                let params = json!({"requestId": client.next_id()});
                client.notify("notifications/cancelled", params).await.unwrap();
            };
            let (answer, ()) = tokio::join!(caller.call(tool, arguments), cancel);
            assert!(answer.and_then(|answer| answer.result().cloned()).is_err());
            assert_eq!(solver.seen()[calls].end, End::Cancelled);
        }
    }

    #[tokio::test]
    async fn only_a_live_session_is_served() {
        let (_work, solver, client) = connected().await;
        let gone = client.clone();
        client.close().await.unwrap();
        let error = gone.clone().request("tools/list", json!({})).await.unwrap_err();
        assert!(error.contains("404"), "{error}");

        let http = reqwest::Client::new();
        let post = |body: &'static str| http.post(solver.url()).body(body).send();
        let none = post(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await.unwrap();
        assert_eq!(none.status(), 400);
        assert_eq!(post("{").await.unwrap().status(), 400);
        assert_eq!(http.get(solver.url()).send().await.unwrap().status(), 404);
    }

    #[tokio::test]
    async fn a_stream_that_was_lost_is_resumed() {
        let (_work, solver, client) = connected().await;
        let (http, url) = (reqwest::Client::new(), solver.url());
        let headed = |request: reqwest::RequestBuilder| {
            request.header("accept", "text/event-stream").header("mcp-session-id", client.session().unwrap())
        };
        let call = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call",
            "params": {"name": "solve", "arguments": {"seconds": 0.1}}});
        let mut lost = headed(http.post(&url)).body(call.to_string()).send().await.unwrap();
        let first = String::from_utf8(lost.chunk().await.unwrap().unwrap().to_vec()).unwrap();
        drop(lost);
        let place = first.lines().next().unwrap().strip_prefix("id: ").unwrap();
        let rest = headed(http.get(&url)).header("last-event-id", place).send().await.unwrap().text().await.unwrap();
        assert!(rest.contains("\"id\":9") && rest.contains("run 1: solved"), "{rest}");
        assert_eq!(headed(http.get(&url)).send().await.unwrap().status(), 405, "there is no other stream");
        assert_eq!(headed(http.get(&url)).header("last-event-id", "x-1").send().await.unwrap().status(), 400);
    }

    #[tokio::test]
    async fn ends_when_cut() {
        let (work, solver, client) = connected().await;
        work.cut();
        drop(client);
        assert!(work.finished(Duration::from_secs(2)).await);
        assert!(Client::connect(&solver.url(), Ability::Plain).await.is_err());
    }
}
