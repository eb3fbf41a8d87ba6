//! What the server needs to know from the configuration.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// `[server]`, resolved.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// How clients reach us (`https://host[:port][/…]`); its host is accepted in `Host` on a loopback listener.
    pub public_url: Option<http::Uri>,
    /// Allowed `Origin` values; `"localhost"` stands for every loopback origin, `"*"` for all.
    pub allowed_origins: Vec<String>,
    /// Peers whose `X-Forwarded-*` are believed: address and prefix length.
    pub trusted_proxies: Vec<(IpAddr, u8)>,
    /// Largest request body, in bytes.
    pub max_body: usize,
    /// After this long without a byte a waiting request gets an SSE comment.
    pub keepalive: Duration,
    /// How long a client may take to send its request head.
    pub header_timeout: Duration,
}
