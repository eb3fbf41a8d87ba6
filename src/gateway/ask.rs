//! Questions of taskgate's own to an upstream, in a caller's name.

use std::time::Duration;

use bytes::Bytes;

use crate::jsonrpc::{Envelope, Id, Kind as MessageKind};
use crate::mcp::method;
use crate::upstream::{Arrived, Exchange, Leg, Limits};

/// How long an upstream may take to say whether it accepts a credential.
const PING_LIMIT: Duration = Duration::from_secs(5);
/// The largest page of tools that is read.
const MAX_PAGE: usize = 16 << 20;

/// Asks once, with a ping, whether the upstream accepts the caller's credential on the caller's session.
pub(super) async fn accepts(leg: &Leg) -> bool {
    let asked = tokio::time::timeout(PING_LIMIT, ask(leg, method::PING, "{}")).await;
    let accepts = matches!(asked, Ok(Some(_)));
    if accepts {
        leg.vouched();
    }
    accepts
}

/// Asks with the caller's headers and an id of ours; the result's text, if there is a result.
pub(super) async fn ask(leg: &Leg, method: &str, params: &str) -> Option<Bytes> {
    let id = Id::from_string(&format!("taskgate-{}", uuid::Uuid::new_v4().simple()));
    let request = leg.own_request(&id, method, params);
    let limits = Limits { inline: MAX_PAGE, max: MAX_PAGE };
    let mut exchange = Exchange::open(&leg.upstream.client, request, limits, None).await.ok()?;
    if !exchange.status().is_success() {
        return None;
    }
    loop {
        let text = match exchange.next().await.ok()? {
            Arrived::Body(body) => body,
            Arrived::Event(event) => event.data.unwrap_or_default(),
            Arrived::Large => continue,
        };
        match Envelope::read(text) {
            Ok(message) if message.kind() == MessageKind::Response => return message.result(),
            _ => {}
        }
        if exchange.kind() != crate::upstream::Kind::Events {
            return None;
        }
    }
}
