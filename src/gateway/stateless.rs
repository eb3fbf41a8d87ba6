//! Requests of the stateless era (2026-07-28): each says all there is to know of its client. They are answered here,
//! passed on, or translated for an upstream that only speaks the other era.

use std::sync::Arc;

use http::StatusCode;
use http::header::HeaderName;

use crate::call::{Answer, Error};
use crate::jsonrpc::{Envelope, Id, Kind};
use crate::mcp::routing::{Body, Routing, check, name_of};
use crate::mcp::{Params, STATELESS, header, method};
use crate::upstream::{Bridge, Leg, Speaks};

use super::caller::Caller;
use super::{Gateway, Handling, Reply, Request, Route, plain};

/// What becomes of a request that taskgate does not answer by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ground {
    /// It is translated.
    Bridged,
    /// The upstream's own answer passes.
    Sealed,
}

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
                let caller = self.alone(&route, &request, (&message, params));
                self.later(|gateway| async move { gateway.stateless_task(caller, &request, &message, &id).await })
            }
            // Closing the stream is the signal.
            (Kind::Notification, _) if message.method() == method::CANCELLED => {
                plain(Answer::empty(StatusCode::ACCEPTED)).into()
            }
            (Kind::Request, Some(id)) if message.method() == method::LISTEN => {
                let (ground, stateless) = (ground(&route, params), (route, request));
                self.later(|gateway| async move { gateway.subscribe_stateless(ground, stateless, message, &id).await })
            }
            (Kind::Request, Some(id)) if ground(&route, params) == Ground::Bridged => {
                self.bridged(route, request, message, &id).into()
            }
            _ => self.sealed(&route, request, &message).into(),
        }
    }

    /// A caller that is answered without asking the upstream for anything.
    pub(super) fn alone(&self, route: &Arc<Route>, request: &Request, message: (&Envelope, &Params<'_>)) -> Caller {
        let leg = Leg::new(route.upstream.clone(), None, &request.headers, request.query.as_deref());
        Caller::stateless(&self.inner, route.clone(), leg, request, message)
    }

    /// `tasks/*`: those of ours are known by their id alone.
    async fn stateless_task(&self, caller: Caller, request: &Request, message: &Envelope, id: &Id) -> Reply {
        let checked = checked(request, message).and_then(|()| declared(&caller, message));
        match checked {
            Ok(()) => self.own_tasks(caller, message, id).await,
            Err(error) => self.fails(&caller, id, &error),
        }
    }
}

fn ground(route: &Route, params: &Params<'_>) -> Ground {
    let upstream = &route.upstream;
    match (upstream.facts.stateless(), upstream.options.bridging.bridge) {
        (Speaks::Yes, _) | (_, Bridge::Off) => Ground::Sealed,
        (_, Bridge::Always) => Ground::Bridged,
        (_, Bridge::Auto) if params.meta().declares_tasks => Ground::Bridged,
        (_, Bridge::Auto) => Ground::Sealed,
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

/// Whether a request that taskgate answers is one of the stateless era in all it says (2026-07-28, "Request Metadata").
pub(super) fn checked(request: &Request, message: &Envelope) -> Result<(), Error> {
    let params = Params::peek(message.params());
    let meta = params.meta();
    let missing = |what: &str| Error::InvalidEnvelope(format!("params._meta lacks {what}: send it with every request"));
    let version = meta.protocol_version.as_deref().ok_or_else(|| missing("io.modelcontextprotocol/protocolVersion"))?;
    if meta.abilities.is_none() {
        return Err(missing("io.modelcontextprotocol/clientCapabilities"));
    }
    let value = |name: HeaderName| request.headers.get(name).map(http::HeaderValue::as_bytes);
    let routing = Routing {
        version: value(HeaderName::from_static(header::PROTOCOL_VERSION)),
        method: value(HeaderName::from_static(header::METHOD)),
        name: value(HeaderName::from_static(header::NAME)),
    };
    let name = name_of(message.method(), message.params());
    let body = Body { version: Some(version), method: message.method(), name: name.as_deref() };
    check(routing, body).map_err(|mismatch| Error::HeaderMismatch(mismatch.to_string()))?;
    if version == STATELESS { Ok(()) } else { Err(Error::UnsupportedVersion { requested: version.to_owned() }) }
}
