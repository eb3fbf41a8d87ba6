//! One upstream server as configured.

use std::time::Duration;

use http::{HeaderMap, HeaderName, Uri};

/// One `[[upstream]]`, resolved, without its rules.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name in logs and metrics.
    pub name: String,
    /// The path clients call, without a trailing slash (`/mcp`).
    pub path: String,
    /// Where the server listens, `http` or `https`.
    pub url: Uri,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
    /// Headers added to every request (they replace the client's).
    pub headers: HeaderMap,
    /// Whether the client's `Authorization` goes on to the upstream.
    pub forward_authorization: bool,
    /// Which header carries a caller's credential.
    pub credential_header: HeaderName,
    /// Whether taskgate makes session ids for an upstream that gives none.
    pub mint_sessions: bool,
}
