//! The admin listener: health, readiness, metrics.

use std::net::SocketAddr;

/// `[admin]`, resolved.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Bearer token; required off loopback.
    pub token: Option<String>,
    /// Whether `/metrics` asks for the token as well (health and readiness never do).
    pub metrics_token: bool,
}
