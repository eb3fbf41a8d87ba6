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
    /// How clients reach taskgate, where that is configured: it takes the place of the server's own address in what it
    /// says of its authentication.
    pub public_url: Option<Uri>,
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
    /// How it is joined to clients of the other era.
    pub bridging: Bridging,
}

/// `bridge`, `bridge_sessions` and `bridge_max_sessions`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bridging {
    /// Which requests of the other era are translated.
    pub bridge: Bridge,
    /// Whose sessions callers without a credential get.
    pub sessions: BridgeSessions,
    /// How many upstream sessions one owner may have.
    pub max_sessions: MaxSessions,
}

/// How many sessions one owner may have; 16 unless configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxSessions(pub usize);

impl Default for MaxSessions {
    fn default() -> Self {
        Self(16)
    }
}

/// Which requests of the stateless era are translated for an upstream of the handshake era.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bridge {
    /// Those that declare the tasks extension; all others get the upstream's own answer.
    #[default]
    Auto,
    /// All.
    Always,
    /// None.
    Off,
}

/// Whose upstream sessions stateless callers without a credential get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BridgeSessions {
    /// Each call gets one of its own.
    #[default]
    Owner,
    /// All share one.
    Shared,
}
