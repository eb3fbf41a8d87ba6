//! `initialize` for an upstream that has none: its answer is made of what the server says of itself.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::info;

use crate::call::{Answer, Outgoing, Step};
use crate::jsonrpc::{Envelope, Id, entries, request, result_response};
use crate::mcp::{ClientHello, STATELESS, Version, header, method, upward};
use crate::session::Repeated;
use crate::upstream::{Bridge, Facts, Speaks, ask};
use crate::worker::failed;

use super::super::caller::Caller;
use super::super::forward::response_of;
use super::super::hello::{Greeting, result_in};
use super::super::{Framing, Gateway, Reply};
use super::too_much;

/// How long a server may take to say what it speaks.
const PATIENCE: Duration = Duration::from_secs(5);

impl Gateway {
    /// Whether the upstream is known to open no sessions, and is to be joined to clients that want one.
    pub(in crate::gateway) fn knows_only_stateless(&self, caller: &Caller) -> bool {
        let upstream = &caller.leg.upstream;
        upstream.options.bridging.bridge != Bridge::Off
            && upstream.facts.stateless() == Speaks::Yes
            && upstream.facts.handshake() == Speaks::No
    }

    /// The upstream has refused `initialize`: finds out whether it speaks only the stateless era, and opens the session
    /// here if so.
    pub(in crate::gateway) async fn find_out(&self, caller: &Caller, message: &Envelope, id: &Id) -> Option<Answer> {
        let upstream = &caller.leg.upstream;
        if upstream.options.bridging.bridge == Bridge::Off || upstream.facts.handshake() == Speaks::Yes {
            return None;
        }
        let repeated = Repeated::read(message.params()).map(Arc::new);
        let leg = caller.leg.clone().repeating(repeated.clone().unwrap_or_default());
        let found = timeout(PATIENCE, ask(&leg, method::DISCOVER, "{}")).await.ok()??;
        let found = std::str::from_utf8(&found).ok().filter(|found| learn(&upstream.facts, found))?;
        info!(path = &*upstream.options.path, "the upstream only speaks {STATELESS}: its sessions are opened here");
        Some(match repeated {
            Ok(repeated) => self.open_upwards(caller, (message, id), (found, repeated), HeaderMap::new()),
            Err(error) => failed(&too_much(error), id, caller.standing()),
        })
    }

    /// `initialize` in front of an upstream that is known to speak only the stateless era.
    pub(in crate::gateway) fn hello_upwards(&self, mut caller: Caller, message: &Envelope, id: &Id) -> Reply {
        let repeated = match Repeated::read(message.params()) {
            Ok(repeated) => Arc::new(repeated),
            Err(error) => return self.fails(&caller, id, &too_much(error)),
        };
        let plain = caller.leg.clone();
        caller.leg = plain.clone().repeating(repeated.clone());
        let (told, head) = oneshot::channel();
        let mut assignment = self.assignment(&caller, request(id, method::DISCOVER, "{}"), id);
        (assignment.head, assignment.log, assignment.inline) = (Some(told), None, usize::MAX);
        let steps = self.inner.worker.start(assignment);
        let (gateway, message, id) = (self.clone(), message.clone(), id.clone());
        let (method, dialect) = (caller.method, caller.dialect.word());
        let edit = move |answer: Answer| async move {
            let head = head.await.unwrap_or_default();
            let found = result_in(&answer).filter(|_| answer.status.is_success()).map(|(_, result)| result);
            match found.as_deref().map(std::str::from_utf8) {
                Some(Ok(found)) if learn(&caller.leg.upstream.facts, found) => {
                    gateway.open_upwards(&caller, (&message, &id), (found, repeated), head)
                }
                None if !is_refused(&answer) => answer,
                // It was one of the other era, or has become one.
                _ => {
                    caller.leg.upstream.facts.set_handshake(Speaks::Unknown);
                    caller.leg = plain;
                    last(gateway.hello(caller, &message, &id).outgoing).await.unwrap_or(answer)
                }
            }
        };
        let steps = self.edited(steps, |_| {}, edit);
        Reply { outgoing: Outgoing::Later(steps), framing: Framing::AsItComes, method, dialect }
    }

    /// Opens a session of ours, for a client that gets what the server said of itself.
    fn open_upwards(
        &self,
        caller: &Caller,
        (message, id): (&Envelope, &Id),
        (found, repeated): (&str, Arc<Repeated>),
        mut head: HeaderMap,
    ) -> Answer {
        let params = entries(message.params().unwrap_or_default());
        let asked = params.get("protocolVersion").and_then(|raw| serde_json::from_str::<String>(raw).ok());
        let result = upward::initialize(found, &asked.unwrap_or_default());
        let answer = Answer::message(StatusCode::OK, result_response(id, &result));
        head.remove(header::SESSION_ID);
        let minted = uuid::Uuid::new_v4().to_string();
        let client = ClientHello::read(message.params());
        let greeting = Greeting { client, minted: Some(&minted), repeated: Some(repeated) };
        self.greeted(caller, greeting, answer, &head)
    }
}

/// Whether a server says that it does not do what was asked, and not that this caller may not ask.
pub(in crate::gateway) fn is_refused(answer: &Answer) -> bool {
    let about_the_caller = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::PROXY_AUTHENTICATION_REQUIRED,
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    let is_error = || match &answer.body {
        crate::call::Body::Message(text) => response_of(text).is_some_and(|message| message.error().is_some()),
        _ => false,
    };
    match answer.status {
        status if status.is_client_error() => !about_the_caller.contains(&status),
        status => status.is_success() && is_error(),
    }
}

/// Remembers what a server says it speaks; whether that is the stateless era and no other.
fn learn(facts: &Facts, found: &str) -> bool {
    let result = entries(found);
    let versions: Vec<&RawValue> =
        result.get("supportedVersions").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let versions: Vec<String> = versions.iter().filter_map(|raw| serde_json::from_str(raw.get()).ok()).collect();
    if !versions.iter().any(|version| version == STATELESS) {
        return false;
    }
    facts.set_discovered(found);
    let has_sessions = versions.iter().any(|version| Version::handshake(version).is_some());
    if !has_sessions {
        facts.set_handshake(Speaks::No);
    }
    !has_sessions
}

/// The answer, whatever comes before it.
async fn last(outgoing: Outgoing) -> Option<Answer> {
    match outgoing {
        Outgoing::Now(answer) => Some(answer),
        Outgoing::Later(mut steps) => loop {
            if let Step::Done(answer, _) = steps.recv().await? {
                return Some(*answer);
            }
        },
    }
}
