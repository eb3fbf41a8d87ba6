//! Whether an upstream accepts a caller's credential.

use std::time::Duration;

use crate::mcp::method;
use crate::upstream::{Leg, ask};

/// How long an upstream may take to say whether it accepts a credential.
const LIMIT: Duration = Duration::from_secs(5);

/// Asks once whether the upstream accepts the caller's credential on the caller's session, which it must know.
pub(super) async fn accepts(leg: &Leg) -> bool {
    let asked = tokio::time::timeout(LIMIT, ask(leg, method::PING, "{}")).await;
    let accepts = matches!(asked, Ok(Some(_)));
    if accepts {
        leg.vouched();
    }
    accepts
}
