//! What a session's GET stream is made of where the upstream has none: one `subscriptions/listen` (2026-07-28) for all
//! that the session wants to hear of, opened while somebody listens, and again when it ends or that is something else.

use std::pin::pin;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Limited};
use tokio::time::{Instant, sleep};
use tracing::debug;

use crate::call::Event;
use crate::jsonrpc::{Envelope, Id, Kind as MessageKind, METHOD_NOT_FOUND, Object, entries, request};
use crate::mcp::{method, upward};
use crate::session::{Repeated, Session};
use crate::upstream::{EventStream, Leg, Opened, events};

use super::{Pauses, Worker};

/// The lists that may change, as capabilities and filters name them.
const LISTS: [(&str, &str); 3] =
    [("tools", "toolsListChanged"), ("prompts", "promptsListChanged"), ("resources", "resourcesListChanged")];

/// Why a subscription is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// It ended; it may be opened again.
    Ended,
    /// The upstream has no such thing.
    Refused,
}

/// Follows the subscription of one session.
pub(super) struct Subscription {
    worker: Worker,
    leg: Leg,
    limit: usize,
    pauses: Pauses,
}

impl Subscription {
    pub(super) fn new(worker: &Worker, leg: &Leg, limit: usize) -> Self {
        Self { worker: worker.clone(), leg: leg.clone(), limit, pauses: Pauses::default() }
    }

    /// Follows it until nobody listens any more.
    pub(super) async fn run(mut self) {
        let (Some(session), Some(repeated)) = (self.leg.session.clone(), self.leg.repeated().cloned()) else { return };
        let (work, hub) = (self.worker.work.clone(), session.hub().clone());
        loop {
            tokio::select! {
                biased;
                () = work.severed() => return hub.close(),
                () = hub.unneeded() => if hub.close_if_unneeded() { return },
                () = self.listen(&session, &repeated) => {}
            }
        }
    }

    /// One subscription, and the pause after it; returns early when another is wanted.
    async fn listen(&mut self, session: &Session, repeated: &Repeated) {
        let mut changed = pin!(repeated.changed());
        let began = Instant::now();
        let Some(filter) = self.filter(repeated) else { return changed.await };
        let over = tokio::select! {
            over = self.connection(session, &filter) => over,
            () = &mut changed => return,
        };
        if over == Over::Refused {
            return changed.await;
        }
        tokio::select! {
            () = sleep(self.pauses.after(began.elapsed())) => {}
            () = changed => {}
        }
    }

    /// What is asked for; `None` if there is nothing to hear of.
    fn filter(&self, repeated: &Repeated) -> Option<String> {
        let discovered = self.leg.upstream.facts.discovered();
        let result = discovered.as_deref().map(entries);
        let capabilities = result.map(|result| entries(result.get("capabilities").copied().unwrap_or_default()));
        let changes = |list: &str| match &capabilities {
            Some(has) => entries(has.get(list).copied().unwrap_or_default()).get("listChanged") == Some(&"true"),
            None => true,
        };
        let lists = LISTS.iter().filter(|(list, _)| changes(list));
        let (filter, count) =
            lists.fold((Object::new(), 0), |(filter, n), (_, name)| (filter.raw(name, "true"), n + 1));
        let resources = repeated.resources();
        if resources.is_empty() {
            return (count > 0).then(|| filter.finish());
        }
        let resources = serde_json::to_string(&resources).unwrap_or_default();
        Some(filter.raw("resourceSubscriptions", &resources).finish())
    }

    async fn connection(&self, session: &Session, filter: &str) -> Over {
        let id = Id::fresh();
        let params = Object::new().raw("notifications", filter).finish();
        let asked = self.leg.message(request(&id, method::LISTEN, &params));
        let response = match events(&self.leg.upstream.client, asked, self.limit).await {
            Ok(response) => response,
            Err(error) => {
                debug!(%error, "a subscription cannot be opened");
                return Over::Ended;
            }
        };
        let status = response.status();
        match response.into_body() {
            Opened::Events(stream) if status.is_success() => self.read(session, stream).await,
            Opened::Plain(body) if status.is_success() || status == StatusCode::BAD_REQUEST => {
                let body = Limited::new(body, self.limit).collect().await;
                body.map_or(Over::Ended, |body| over(&body.to_bytes()))
            }
            _ if [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED].contains(&status) => Over::Refused,
            _ => Over::Ended,
        }
    }

    async fn read(&self, session: &Session, mut stream: EventStream) -> Over {
        loop {
            let event = match stream.next().await {
                Ok(Some(event)) => event,
                Ok(None) => return Over::Ended,
                Err(error) => {
                    debug!(%error, "a subscription broke off");
                    return Over::Ended;
                }
            };
            let Some(data) = event.data.filter(|data| !data.is_empty()) else { continue };
            let Ok(message) = Envelope::read(data.clone()) else { continue };
            match (message.kind(), message.method()) {
                (MessageKind::Response, _) => return over(&data),
                (MessageKind::Notification, method::ACKNOWLEDGED) => {}
                (MessageKind::Notification, name) => {
                    if name == method::TOOLS_LIST_CHANGED {
                        session.set_catalog(None);
                    }
                    let data = Some(upward::notification(&message));
                    session.hub().relay(Event { event: Some("message".into()), data, ..Event::default() }).await;
                }
                // Nobody is asked anything here.
                (MessageKind::Request, _) => {}
            }
        }
    }
}

/// What the answer to a subscription says.
fn over(message: &Bytes) -> Over {
    let message = Envelope::read(message.clone()).ok();
    match message.and_then(|message| message.error_object()) {
        Some(error) if error.code == METHOD_NOT_FOUND => Over::Refused,
        _ => Over::Ended,
    }
}
