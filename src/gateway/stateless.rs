//! Requests of the stateless era (2026-07-28): each says all there is to know of its client. They are answered here,
//! passed on, or translated for an upstream that only speaks the other era.

use std::sync::Arc;

use http::{HeaderValue, StatusCode};

use crate::call::{Answer, Error, Side};
use crate::jsonrpc::{Envelope, Id, Kind};
use crate::mcp::routing::{Body, Routing, agree, check, name_of};
use crate::mcp::{OwnTasks, Params, STATELESS, header, method};
use crate::upstream::{Leg, Speaks};

use super::caller::Caller;
use super::eras::{self, Ground};
use super::{Gateway, Handling, Reply, Request, Route, access, plain, word};

impl Gateway {
    pub(super) fn stateless(
        &self,
        route: Arc<Route>,
        mut request: Request,
        message: Envelope,
        params: &Params<'_>,
    ) -> Handling {
        request.headers.remove(header::SESSION_ID);
        match (message.kind(), message.id().cloned()) {
            (Kind::Request, Some(id)) if message.method().starts_with("tasks/") => {
                self.later(|gateway| async move { gateway.stateless_task(route, request, message, &id).await })
            }
            // Closing the stream is the signal.
            (Kind::Notification, _) if message.method() == method::CANCELLED => self.taken(&request, &message).into(),
            (Kind::Request, Some(id)) => match eras::ground(&route, &request, (&message, params)) {
                // It is refused whatever its upstream speaks.
                None if self.is_refused(&route, &request, (&message, params)) => {
                    self.bridged(route, request, message, &id).into()
                }
                Some(ground) => self.on(ground, (route, request, message), &id),
                // It is no reason to ask for anything.
                None if checked(&request, &message).is_err() => match eras::wants_bridge(&route, params) {
                    true => self.bridged(route, request, message, &id).into(),
                    false => self.on(Ground::Sealed, (route, request, message), &id),
                },
                None => self.later(|gateway| async move {
                    let ground = gateway.learnt(&route, &request, &Params::peek(message.params())).await;
                    match gateway.on(ground, (route, request, message), &id) {
                        Handling::Ready(reply) => reply,
                        Handling::Later(reply) => reply.await,
                    }
                }),
            },
            // In no session, nobody there would know what it is about.
            _ if route.upstream.facts.stateless() != Speaks::Yes && eras::wants_bridge(&route, params) => {
                self.taken(&request, &message).into()
            }
            _ => self.sealed(&route, &request, &message).into(),
        }
    }

    /// A notification that goes no further.
    fn taken(&self, request: &Request, message: &Envelope) -> Reply {
        let method = word(message);
        self.tally_of(method, request.received).done(Side::None);
        Reply { method, ..plain(Answer::empty(StatusCode::ACCEPTED)) }
    }

    /// Whether a call that would be translated is not sent at all.
    fn is_refused(&self, route: &Arc<Route>, request: &Request, message: (&Envelope, &Params<'_>)) -> bool {
        let caller = self.alone(route, request, message);
        message.0.method() == method::TOOLS_CALL
            && eras::wants_bridge(route, message.1)
            && self.check_call(&caller, message.1).is_err()
    }

    /// The one place where it is decided whether a request is passed, acted on, or translated.
    fn on(&self, ground: Ground, stateless: (Arc<Route>, Request, Envelope), id: &Id) -> Handling {
        let (route, request, message) = stateless;
        match ground {
            _ if message.method() == method::LISTEN => {
                let id = id.clone();
                self.later(|gateway| async move {
                    gateway.subscribe_stateless(ground, (route, request), message, &id).await
                })
            }
            Ground::Bridged => self.bridged(route, request, message, id).into(),
            Ground::Sealed if message.method() == method::DISCOVER => {
                self.later(|gateway| async move { gateway.relayed_discover(&route, &request, &message).await })
            }
            Ground::Sealed => self.sealed(&route, &request, &message).into(),
            Ground::Native => self.native(&route, &request, message, id),
        }
    }

    /// A request for an upstream that speaks its era: acted on as in the other one, and otherwise left alone.
    fn native(&self, route: &Arc<Route>, request: &Request, message: Envelope, id: &Id) -> Handling {
        let text = message.clone();
        let params = Params::peek(text.params());
        let caller = self.native_caller(route, request, (&message, &params));
        match message.method() {
            // It has no place in this era.
            method::INITIALIZE => self.sealed(route, request, &message).into(),
            method::DISCOVER | method::TOOLS_LIST | method::TOOLS_CALL => match agreed(request, &message) {
                Ok(()) if message.method() == method::DISCOVER => self.discover(caller, &message, id).into(),
                Ok(()) => self.request(caller, message, &params, id),
                Err(error) => self.fails(&caller, id, &error).into(),
            },
            _ => self.request(caller, message, &params, id),
        }
    }

    fn native_caller(&self, route: &Arc<Route>, request: &Request, message: (&Envelope, &Params<'_>)) -> Caller {
        let leg = Leg::new(route.upstream.clone(), None, &request.headers, request.query.as_deref());
        let leg = leg.stateless(message.1.meta_text());
        let mut caller = Caller::stateless(&self.inner, route.clone(), leg, request, message);
        caller.unfit = checked(request, message.0).err();
        caller
    }

    /// A caller that is answered without asking the upstream for anything.
    pub(super) fn alone(&self, route: &Arc<Route>, request: &Request, message: (&Envelope, &Params<'_>)) -> Caller {
        let leg = Leg::new(route.upstream.clone(), None, &request.headers, request.query.as_deref());
        Caller::stateless(&self.inner, route.clone(), leg, request, message)
    }

    /// `tasks/*`: those of ours are known by their id alone, all others are the upstream's if it has any.
    async fn stateless_task(&self, route: Arc<Route>, request: Request, message: Envelope, id: &Id) -> Reply {
        let params = Params::peek(message.params());
        let caller = self.alone(&route, &request, (&message, &params));
        if self.is_foreign(&caller, &route, &request, &message).await {
            let caller = self.native_caller(&route, &request, (&message, &params));
            return self.forward(&caller, &message, id);
        }
        let checked = checked(&request, &message).and_then(|()| declared(&caller, &message));
        match checked {
            Ok(()) => self.own_tasks(caller, &message, id).await,
            Err(error) => self.fails(&caller, id, &error),
        }
    }

    /// Whether the upstream has tasks of its own, and this is none of ours.
    async fn is_foreign(&self, caller: &Caller, route: &Route, request: &Request, message: &Envelope) -> bool {
        let facts = &route.upstream.facts;
        let way = eras::way_of(route, request);
        if facts.stateless_on(way) == Speaks::No {
            return false;
        }
        let params = Params::peek(message.params());
        let task = params.task_id().unwrap_or_default();
        if !matches!(access::find(&self.inner.worker, caller, &task).await, Ok(None)) {
            return false;
        }
        if facts.stateless_on(way) == Speaks::Unknown && checked(request, message).is_ok() {
            self.learnt(route, request, &params).await;
        }
        facts.stateless_on(way) == Speaks::Yes && facts.own_tasks() == OwnTasks::Extension
    }
}

/// Nothing is done for a client that has not declared tasks in this very request.
fn declared(caller: &Caller, message: &Envelope) -> Result<(), Error> {
    let needs = matches!(message.method(), method::TASKS_GET | method::TASKS_UPDATE | method::TASKS_CANCEL);
    if needs && !caller.extension {
        return Err(Error::TasksUndeclared(format!("{} is for clients that declare tasks", message.method())));
    }
    Ok(())
}

/// Whether the headers of a request that taskgate acts on say what its body says. What is missing is for the upstream
/// to judge.
fn agreed(request: &Request, message: &Envelope) -> Result<(), Error> {
    let params = Params::peek(message.params());
    let version = params.meta().protocol_version;
    let name = name_of(message.method(), message.params());
    let body = Body { version: version.as_deref(), method: message.method(), name: name.as_deref() };
    agree(routing_of(request), body).map_err(|mismatch| Error::HeaderMismatch(mismatch.to_string()))
}

fn routing_of(request: &Request) -> Routing<'_> {
    let value = |name: &'static str| request.headers.get(name).map(HeaderValue::as_bytes);
    Routing { version: value(header::PROTOCOL_VERSION), method: value(header::METHOD), name: value(header::NAME) }
}

/// Whether a request that taskgate answers is one of the stateless era in all it says (2026-07-28, "Request Metadata").
pub(super) fn checked(request: &Request, message: &Envelope) -> Result<(), Error> {
    let params = Params::peek(message.params());
    let meta = params.meta();
    let missing = |what: &str| Error::InvalidEnvelope(format!("params._meta lacks {what}: send it with every request"));
    let version = meta.protocol_version.as_deref().ok_or_else(|| missing("io.modelcontextprotocol/protocolVersion"))?;
    if !meta.capabilities.is_some_and(|text| text.starts_with('{')) {
        return Err(missing("io.modelcontextprotocol/clientCapabilities, an object"));
    }
    let name = name_of(message.method(), message.params());
    let body = Body { version: Some(version), method: message.method(), name: name.as_deref() };
    check(routing_of(request), body).map_err(|mismatch| Error::HeaderMismatch(mismatch.to_string()))?;
    if version == STATELESS { Ok(()) } else { Err(Error::UnsupportedVersion { requested: version.to_owned() }) }
}
