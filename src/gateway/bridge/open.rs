//! Opening and closing upstream sessions in the name of stateless clients.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, oneshot};
use tokio::time::{sleep, timeout};
use tracing::{debug, info};

use crate::call::{Answer, Step};
use crate::jsonrpc::{Id, entries, notification, request};
use crate::mcp::{ClientHello, Params, ServerHello, downward, header, method};
use crate::session::{Hello, Session};
use crate::shutdown::Work;
use crate::upstream::{Leg, Speaks, Upstream, ask};

use super::super::caller::Caller;
use super::super::hello::{message_in, result_in};
use super::super::{Gateway, Request};
use super::news::Resources;

/// How long a server may take to open a session: others wait for it.
const OPENED: Duration = Duration::from_secs(60);
/// How long a session is kept that no request uses, at most.
const IDLE: Duration = Duration::from_secs(300);
/// How long a server may take to hear that a session has ended.
const CLOSED: Duration = Duration::from_secs(10);
/// How long a server may take to hear that its session has begun.
const INITIALIZED: Duration = Duration::from_secs(10);

/// An upstream session of taskgate's own making.
#[derive(Debug)]
pub(in crate::gateway) struct Opened {
    pub(super) session: Arc<Session>,
    /// The result of `initialize`, as JSON text.
    pub(super) told: Arc<str>,
    /// The server, as JSON text.
    pub(super) server_info: Option<Arc<str>>,
    /// The version that was negotiated, as a header.
    version: HeaderValue,
    /// The way there of who opened it.
    leg: Leg,
    work: Work,
    /// Whether the server was told to send log messages of every level: each client says anew which it wants.
    logs: OnceCell<()>,
    /// Its place among all such sessions.
    _room: OwnedSemaphorePermit,
    /// What those who listen have subscribed to.
    pub(super) resources: Resources,
}

/// A session that ends with the request it was opened for.
#[derive(Debug)]
pub(super) struct Alone(pub(super) Arc<Opened>);

impl Drop for Alone {
    fn drop(&mut self) {
        drop(self.0.close());
    }
}

impl Opened {
    /// The way of a request with `request`'s headers on this session.
    pub(super) fn leg(&self, upstream: &Arc<Upstream>, request: &Request) -> Leg {
        // It is in use: it is not forgotten as an idle one.
        drop(upstream.sessions.find(&self.session.id));
        let headers = in_session(&request.headers, Some((&self.session, &self.version)));
        Leg::new(upstream.clone(), Some(self.session.clone()), &headers, request.query.as_deref())
    }

    /// Makes sure that the server sends log messages.
    pub(super) async fn want_logs(&self) {
        let has_logs =
            entries(&self.told).get("capabilities").is_some_and(|text| entries(text).contains_key("logging"));
        if !has_logs {
            return;
        }
        let id = Id::fresh();
        let said = || async {
            let message = self.leg.message(request(&id, method::SET_LEVEL, r#"{"level":"debug"}"#));
            let _ = timeout(INITIALIZED, self.leg.upstream.client.send(message)).await;
        };
        self.logs.get_or_init(said).await;
    }

    /// Whether the server still knows the session.
    pub(super) async fn is_there(&self) -> bool {
        let asked = timeout(INITIALIZED, ask(&self.leg, method::PING, "{}"));
        !self.session.is_ended() && matches!(asked.await, Ok(Some(_)))
    }

    /// Nobody needs it any more: the upstream is told so, whether or not the end of that is waited for.
    pub(super) fn close(&self) -> impl Future<Output = ()> + use<> {
        self.session.end();
        self.leg.upstream.sessions.forget(&self.session);
        let mut request = self.leg.message(Bytes::new());
        request.method = Method::DELETE;
        let client = self.leg.upstream.client.clone();
        let is_told = !self.session.minted && !self.session.is_handed_on();
        let told = is_told.then(|| {
            self.work.spawn(async move {
                if !matches!(timeout(CLOSED, client.send(request)).await, Ok(Ok(_))) {
                    debug!("the end of a session did not reach the upstream");
                }
            })
        });
        async move {
            if let Some(told) = told {
                drop(told.await);
            }
        }
    }
}

impl Gateway {
    /// Opens a session for `caller`, whose request is `request` with these parameters.
    ///
    /// # Errors
    /// The upstream's answer, if it opens none.
    pub(super) async fn open(
        &self,
        caller: &Caller,
        request: &Request,
        id: &Id,
        params: &str,
    ) -> Result<Opened, Answer> {
        let room = self.room_for_session().await;
        let upstream = &caller.leg.upstream;
        let headers = in_session(&request.headers, None);
        let leg = Leg::new(upstream.clone(), None, &headers, request.query.as_deref());
        let (told, head) = oneshot::channel();
        let hello = initialize(id, params);
        let mut assignment = self.assignment(caller, hello, id);
        assignment.request = leg.request(Method::POST, assignment.request.body.clone());
        (assignment.head, assignment.log, assignment.inline) = (Some(told), None, usize::MAX);
        assignment.max_runtime = Some(OPENED);
        // What its client asked is counted when that is answered.
        assignment.tally.metrics = None;
        let mut steps = self.inner.worker.start(assignment);
        let answer = loop {
            match steps.recv().await {
                Some(Step::Done(answer, _)) => break *answer,
                Some(Step::Open(_) | Step::Hold | Step::Event(_)) => {}
                None => return Err(Answer::empty(http::StatusCode::BAD_GATEWAY)),
            }
        };
        let result = result_in(&answer).filter(|_| answer.status.is_success()).map(|(_, result)| result);
        let Some(result) = result else {
            let heard = message_in(&answer);
            upstream.facts.heard_initialize(answer.status, heard.as_ref());
            return Err(answer);
        };
        let told = String::from_utf8_lossy(&result).into_owned();
        Ok(self.opened(caller, request, &head.await.unwrap_or_default(), (told, params, room)).await)
    }

    async fn opened(
        &self,
        caller: &Caller,
        request: &Request,
        head: &HeaderMap,
        (told, params, room): (String, &str, OwnedSemaphorePermit),
    ) -> Opened {
        let upstream = &caller.leg.upstream;
        let (client, server) = (ClientHello::read(Some(params)), ServerHello::read(&told));
        let hello = Hello { client, server, repeated: None };
        let named = head.get(header::SESSION_ID).and_then(|id| id.to_str().ok());
        upstream.answered_hello(named);
        upstream.facts.set_handshake(Speaks::Yes);
        let session = match named {
            Some(id) => upstream.sessions.open(id, hello),
            None => upstream.sessions.mint(&uuid::Uuid::new_v4().to_string(), hello),
        };
        session.began_with(caller.credential());
        session.accepted(caller.leg.credential(), session.turn());
        session.keep_cookies(head);
        let version = {
            let result = entries(&told);
            let stated = result.get("protocolVersion").and_then(|raw| serde_json::from_str::<String>(raw).ok());
            stated.and_then(|version| HeaderValue::from_str(&version).ok())
        };
        let version = version.unwrap_or(HeaderValue::from_static("2025-03-26"));
        let headers = in_session(&request.headers, Some((&session, &version)));
        let leg = Leg::new(upstream.clone(), Some(session.clone()), &headers, request.query.as_deref());
        let server_info = entries(&told).get("serverInfo").map(|text| (*text).into());
        let initialized = leg.message(notification("notifications/initialized", "{}"));
        let _ = timeout(INITIALIZED, upstream.client.send(initialized)).await;
        info!(path = &*upstream.options.path, "opened an upstream session for a stateless client");
        let work = self.inner.worker.work.clone();
        Opened {
            session,
            told: told.into(),
            server_info,
            version,
            leg,
            work,
            logs: OnceCell::new(),
            _room: room,
            resources: Resources::default(),
        }
    }

    /// Room for one more session for stateless clients, whoever they are; waits while there is none. Cancel safe.
    pub(super) async fn room_for_session(&self) -> OwnedSemaphorePermit {
        let room = self.inner.pools.room();
        if let Ok(room) = room.clone().try_acquire_owned() {
            return room;
        }
        self.close_bridges(Duration::ZERO);
        room.acquire_owned().await.expect("it is never closed")
    }

    /// Closes the sessions for stateless clients that no request has used for this long.
    pub fn close_bridges(&self, idle: Duration) {
        for opened in self.inner.pools.take_idle(idle) {
            drop(opened.close());
        }
    }

    /// The same for those that were not used for a while. For ever; cancel safe.
    pub async fn close_idle_bridges(&self) {
        let idle = self.inner.routes.iter().map(|route| route.upstream.sessions.idle()).min().unwrap_or(IDLE).min(IDLE);
        loop {
            sleep(idle / 4).await;
            self.close_bridges(idle);
        }
    }
}

/// What opens a session, under the id of the request that needs it.
fn initialize(id: &Id, params: &str) -> Bytes {
    request(id, method::INITIALIZE, params)
}

/// A stateless request's headers as those of a request in a session: its routing headers would not fit.
fn in_session(headers: &HeaderMap, session: Option<(&Session, &HeaderValue)>) -> HeaderMap {
    let is_stateless =
        |name: &str| matches!(name, header::PROTOCOL_VERSION | header::SESSION_ID) || header::repeats_body(name);
    let mut kept: HeaderMap = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers.iter().filter(|(name, _)| !is_stateless(name.as_str())) {
        kept.append(name.clone(), value.clone());
    }
    if let Some((session, version)) = session {
        kept.insert(header::PROTOCOL_VERSION, version.clone());
        if let Ok(id) = HeaderValue::from_str(&session.id) {
            kept.insert(header::SESSION_ID, id);
        }
    }
    kept
}

/// What a stateless request says that a session is opened with.
pub(super) fn parameters(params: &Params<'_>) -> String {
    let meta = params.meta();
    downward::initialize(meta.client_info, meta.capabilities)
}
