//! Tells an upstream that a call is no longer wanted.

use std::time::Duration;

use bytes::Bytes;
use tracing::debug;

use crate::jsonrpc::{Object, notification};
use crate::mcp::{Era, method};
use crate::session::InFlight;
use crate::shutdown::Work;
use crate::upstream::Leg;

/// How long the exchange stays open so that the server sees the notification before the connection goes.
const GRACE: Duration = Duration::from_millis(500);
/// How long a busy server may take to read the notification.
const DELIVERY: Duration = Duration::from_secs(60);

/// Sends `notifications/cancelled` on the call's session, past everything that waits, and returns when it was
/// accepted or after half a second; it is delivered in any case. The caller closes the exchange then, which is all
/// that the stateless era has for it.
pub async fn cancel_upstream(work: &Work, leg: &Leg, call: &InFlight, reason: &str) {
    if leg.era == Era::Stateless {
        return;
    }
    let params = Object::new().raw("requestId", call.upstream_id.raw()).string("reason", reason).finish();
    send(work, leg, notification(method::CANCELLED, &params)).await;
}

/// Posts a message upstream and waits half a second for it to be accepted; it is delivered in any case.
pub(super) async fn send(work: &Work, leg: &Leg, message: Bytes) {
    let _ = tokio::time::timeout(GRACE, deliver(work, leg, message)).await;
}

/// Posts a message upstream in a task of its own, with the latest credential.
pub(super) fn deliver(work: &Work, leg: &Leg, message: Bytes) -> impl Future<Output = ()> + use<> {
    let (client, request) = (leg.upstream.client.clone(), leg.message(message));
    let sent = work.spawn(async move {
        match tokio::time::timeout(DELIVERY, client.send(request)).await {
            Ok(Ok(answer)) if answer.status().is_success() => {}
            Ok(Ok(answer)) => debug!(status = answer.status().as_u16(), "the upstream refused a message"),
            Ok(Err(error)) => debug!(%error, "a message did not reach the upstream"),
            Err(_) => debug!("the upstream did not take a message in time"),
        }
    });
    async move { drop(sent.await) }
}
