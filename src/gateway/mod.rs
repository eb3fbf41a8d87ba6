//! What is done with a request once it is understood: one match, one file per kind of request.

mod access;
mod ask;
mod batch;
mod bridge;
mod call_tool;
mod caller;
mod catalog;
mod end;
mod eras;
mod forward;
mod hello;
mod job_input;
mod jobs;
mod listen;
mod metadata;
mod options;
mod recover;
mod resume;
mod stateless;
mod subscriptions;
mod tasks;
mod upwards;
mod wait;

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::ALLOW;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::time::Instant;

use crate::call::{Answer, Error, Outgoing, Side, Streams};
use crate::jsonrpc::{Envelope, ErrorObject, Id, Kind, Message, Rope, error_response, rope_response};
use crate::mcp::{Era, OwnTasks, Params, header, method};
use crate::policy::Rules;
use crate::session::{Fingerprints, Session};
use crate::telemetry::metrics::known_method;
use crate::upstream::Upstream;
use crate::worker::{Tally, Worker, failed, refused};

use caller::Caller;

pub use crate::dialect::OutputSchema;
pub use options::{Jobs, Options, SessionEnd};

/// A request that passed the guards.
#[derive(Debug)]
pub struct Request {
    /// `GET`, `POST` or `DELETE`.
    pub method: Method,
    /// Its path, without a trailing slash.
    pub path: String,
    /// Its query.
    pub query: Option<String>,
    /// Its headers.
    pub headers: HeaderMap,
    /// The client's address.
    pub peer: IpAddr,
    /// Its body.
    pub body: Bytes,
    /// When the last byte of the body had come.
    pub received: Instant,
    /// Whether its client reads event streams.
    pub takes_events: bool,
}

/// What is answered.
#[derive(Debug)]
pub struct Reply {
    /// The answer, at once or in steps.
    pub outgoing: Outgoing,
    /// Whether waiting may turn into an event stream.
    pub framing: Framing,
    /// The request's method, from a bounded set of words.
    pub method: &'static str,
    /// The dialect it is answered in.
    pub dialect: &'static str,
}

/// A reply, at once or after some waiting.
pub enum Handling {
    /// It is known.
    Ready(Reply),
    /// It takes a look into the store, or upstream.
    Later(Pin<Box<dyn Future<Output = Reply> + Send>>),
}

impl From<Reply> for Handling {
    fn from(reply: Reply) -> Self {
        Self::Ready(reply)
    }
}

/// Whether an answer may become an event stream while it is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// If the client accepts one.
    Either,
    /// Its headers matter, or it is not ours to frame.
    AsItComes,
}

/// One upstream and the rules of its tools.
#[derive(Debug)]
pub struct Route {
    /// The upstream.
    pub upstream: Arc<Upstream>,
    /// Which of its calls are deferred.
    pub rules: Rules,
}

/// Shared handle to the gateway.
#[derive(Clone, Debug)]
pub struct Gateway {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    routes: Vec<Arc<Route>>,
    options: Options,
    worker: Worker,
    fingerprints: Fingerprints,
    streams: Streams,
    pools: bridge::Pools,
}

const WELL_KNOWN: &str = "/.well-known/oauth-";

impl Gateway {
    /// A gateway to `routes`.
    #[must_use]
    pub fn new(routes: Vec<Route>, options: Options, worker: Worker, fingerprints: Fingerprints) -> Self {
        let routes = routes.into_iter().map(Arc::new).collect();
        Self {
            inner: Arc::new(Inner {
                routes,
                options,
                worker,
                fingerprints,
                streams: Streams::default(),
                pools: bridge::Pools::default(),
            }),
        }
    }

    /// Whether there is anything at `path`.
    #[must_use]
    pub fn accepts(&self, path: &str) -> bool {
        self.route(path).is_some() || path.starts_with(WELL_KNOWN)
    }

    /// How many sessions are known.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.inner.routes.iter().map(|route| route.upstream.sessions.len()).sum()
    }

    /// Forgets event streams that ended long ago: nobody comes back for them.
    pub fn forget_streams(&self) {
        self.inner.streams.forget_old();
    }

    /// Answers one request.
    pub fn handle(&self, request: Request) -> Handling {
        if request.path.starts_with(WELL_KNOWN) && self.route(&request.path).is_none() {
            return self.well_known(&request).into();
        }
        let Some(route) = self.route(&request.path).cloned() else {
            return plain(Answer::empty(StatusCode::NOT_FOUND)).into();
        };
        match self.unknown_session(&route, &request) {
            Some(id) => self.after_restoring(id, route, request),
            None => self.dispatch(route, request),
        }
    }

    fn dispatch(&self, route: Arc<Route>, request: Request) -> Handling {
        match request.method {
            Method::POST => self.post(route, request),
            Method::GET => self.get(route, request),
            _ => self.later(|gateway| async move { gateway.end(route, request).await }),
        }
    }

    fn route(&self, path: &str) -> Option<&Arc<Route>> {
        self.inner.routes.iter().find(|route| route.upstream.options.path == path)
    }

    fn post(&self, route: Arc<Route>, mut request: Request) -> Handling {
        let body = std::mem::take(&mut request.body);
        let (message, params) = match Message::<Params<'_>>::read(&body) {
            Ok(Message::Single(message, params)) => (message, params.unwrap_or_default()),
            Ok(Message::Batch) => return self.batch(&route, &request, &body),
            Err(error) => {
                self.tally_of("other", request.received).done(Side::Client);
                let object = ErrorObject::new(error.code(), error.to_string());
                return plain(Answer::message(StatusCode::BAD_REQUEST, error_response(None, &object))).into();
            }
        };
        let meta = params.meta();
        let known = session_id(&request.headers).and_then(|id| route.upstream.sessions.find(id));
        let version = request.headers.get(header::PROTOCOL_VERSION).map(HeaderValue::as_bytes);
        if known.is_none() && Era::of(version, meta.protocol_version.as_deref(), message.method()) == Era::Stateless {
            return self.stateless(route, request, message, &params);
        }
        let caller = Caller::new(&self.inner, route, known, &request, (&message, &params));
        self.answer(caller, message, &params)
    }

    /// Any message of the handshake era.
    fn answer(&self, caller: Caller, message: Envelope, params: &Params<'_>) -> Handling {
        let is_over = |session: &Arc<Session>| session.is_ended() || self.is_lost(&caller, session);
        if caller.leg.session.as_ref().is_some_and(is_over) {
            return caller.reply(self.refuse(&caller, &message, &Error::SessionEnded)).into();
        }
        if caller.leg.repeated().is_some() {
            return self.upwards(caller, message, params);
        }
        match (message.kind(), message.id().cloned()) {
            (Kind::Request, Some(id)) => self.request(caller, message, params, &id),
            (Kind::Notification, _) if message.method() == method::CANCELLED => {
                self.later(|gateway| async move { gateway.withdrawn(caller, &message).await })
            }
            _ => self.later(|gateway| async move { gateway.pass_on(caller, &message).await }),
        }
    }

    /// The one match: what is done with a request of the handshake era.
    fn request(&self, caller: Caller, message: Envelope, params: &Params<'_>, id: &Id) -> Handling {
        match message.method() {
            method::INITIALIZE => self.hello(caller, &message, id).into(),
            method::TOOLS_LIST => self.list_tools(caller, &message, id).into(),
            method::TOOLS_CALL => self.call_tool(caller, message, params, id),
            method::TASKS_GET
            | method::TASKS_CANCEL
            | method::TASKS_UPDATE
            | method::TASKS_RESULT
            | method::TASKS_LIST
                if caller.upstream_tasks() != OwnTasks::Extension =>
            {
                let id = id.clone();
                self.later(|gateway| async move { gateway.tasks(caller, &message, &id).await })
            }
            method::LISTEN if caller.upstream_tasks() != OwnTasks::Extension => {
                let id = id.clone();
                self.later(|gateway| async move { gateway.subscribe(caller, &message, &id).await })
            }
            _ => self.forward(&caller, &message, id).into(),
        }
    }

    /// What cannot be answered without waiting; boxed, so that all other requests carry no room for it.
    fn later<F: Future<Output = Reply> + Send + 'static>(&self, work: impl FnOnce(Self) -> F) -> Handling {
        Handling::Later(Box::pin(work(self.clone())))
    }

    /// Whether new work is refused: the process is going down.
    fn is_draining(&self) -> bool {
        self.inner.worker.work.is_draining()
    }

    fn refuse(&self, caller: &Caller, message: &Envelope, error: &Error) -> Answer {
        self.tally(caller).done(error.side());
        match message.id() {
            Some(id) => failed(error, id, caller.standing()),
            None => refused(StatusCode::NOT_FOUND, error),
        }
    }

    fn tally(&self, caller: &Caller) -> Tally {
        Tally {
            metrics: Some(self.inner.worker.metrics.clone()),
            method: caller.method,
            dialect: caller.dialect.word(),
            received: caller.received,
        }
    }

    fn tally_of(&self, method: &'static str, received: Instant) -> Tally {
        Tally { metrics: Some(self.inner.worker.metrics.clone()), method, dialect: "none", received }
    }

    /// An answer of taskgate's own that says `result`.
    fn says(&self, caller: &Caller, id: &Id, result: impl Into<Rope>) -> Reply {
        self.tally(caller).done(Side::None);
        caller.reply(Answer::rope(rope_response(id, result.into())))
    }

    /// An answer of taskgate's own that says an error.
    fn fails(&self, caller: &Caller, id: &Id, error: &Error) -> Reply {
        self.tally(caller).done(error.side());
        caller.reply(failed(error, id, caller.standing()))
    }
}

/// The session that a request names.
fn session_id(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::SESSION_ID).and_then(|id| id.to_str().ok())
}

/// A reply to what is no JSON-RPC request.
fn plain(answer: Answer) -> Reply {
    Reply { outgoing: answer.into(), framing: Framing::AsItComes, method: "other", dialect: "none" }
}

/// The credential is none that the upstream accepts on this session.
fn forbidden() -> Answer {
    let error = Error::InvalidRequest("this session belongs to another credential".into());
    refused(StatusCode::FORBIDDEN, &error)
}

/// The session was deleted by its client.
fn gone() -> Answer {
    refused(StatusCode::NOT_FOUND, &Error::SessionEnded)
}

/// 405 with the methods that there are.
fn not_allowed() -> Answer {
    let mut answer = Answer::empty(StatusCode::METHOD_NOT_ALLOWED);
    answer.headers.insert(ALLOW, HeaderValue::from_static("POST"));
    answer
}

/// The word a method is counted under.
fn word(message: &Envelope) -> &'static str {
    if message.kind() == Kind::Response { "response" } else { known_method(message.method()) }
}
