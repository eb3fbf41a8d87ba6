//! Whose request this is: the client's address and the `X-Forwarded-*` headers.
//!
//! Anybody can write those headers, so they are computed anew unless the peer is a trusted proxy.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::link::Link;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const HTTP: HeaderValue = HeaderValue::from_static("http");

/// Networks whose word is taken.
#[derive(Debug)]
pub(super) struct Trusted(Vec<(IpAddr, u8)>);

impl Trusted {
    pub(super) fn new(networks: &[(IpAddr, u8)]) -> Self {
        Self(networks.to_vec())
    }

    /// Whether `address` is one of them.
    pub(super) fn covers(&self, address: IpAddr) -> bool {
        self.0.iter().any(|(network, prefix)| contains(*network, *prefix, address))
    }
}

fn contains(network: IpAddr, prefix: u8, address: IpAddr) -> bool {
    let same_start = |left: u128, right: u128, width: u32| {
        let rest = width.saturating_sub(u32::from(prefix));
        left.checked_shr(rest).unwrap_or(0) == right.checked_shr(rest).unwrap_or(0)
    };
    match (network, address) {
        (IpAddr::V4(left), IpAddr::V4(right)) => same_start(left.to_bits().into(), right.to_bits().into(), 32),
        (IpAddr::V6(left), IpAddr::V6(right)) => same_start(left.to_bits(), right.to_bits(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

/// Writes the headers an upstream should see, and says whose request it is.
pub(super) fn stamp(headers: &mut HeaderMap, host: HeaderValue, link: &Link, trusted: &Trusted) -> IpAddr {
    if link.is_trusted {
        return extend(headers, host, link, trusted);
    }
    if headers.keys().any(is_ours) {
        let theirs: Vec<HeaderName> = headers.keys().filter(|name| is_ours(name)).cloned().collect();
        for name in theirs {
            headers.remove(name);
        }
    }
    headers.insert(FOR, link.peer_text.clone());
    headers.insert(PROTO, HTTP);
    headers.insert(HOST, host);
    link.peer
}

fn is_ours(name: &HeaderName) -> bool {
    name.as_str().starts_with("x-forwarded-")
}

fn extend(headers: &mut HeaderMap, host: HeaderValue, link: &Link, trusted: &Trusted) -> IpAddr {
    let hops: Vec<&str> = headers.get_all(FOR).iter().filter_map(|line| line.to_str().ok()).collect();
    let mut chain = hops.join(", ");
    let mut client = link.peer;
    for hop in chain.rsplit(',').map_while(address) {
        client = hop;
        if !trusted.covers(hop) {
            break;
        }
    }
    if !chain.is_empty() {
        chain.push_str(", ");
    }
    chain.push_str(link.peer_text.to_str().unwrap_or_default());
    headers.insert(FOR, HeaderValue::try_from(chain).unwrap_or_else(|_| link.peer_text.clone()));
    headers.entry(PROTO).or_insert(HTTP);
    headers.entry(HOST).or_insert(host);
    client
}

fn address(hop: &str) -> Option<IpAddr> {
    let hop = hop.trim();
    let bare = hop.trim_start_matches('[').trim_end_matches(']').parse().ok();
    bare.or_else(|| hop.parse().ok().map(|address: SocketAddr| address.ip()))
        .map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamped(peer: &str, lines: &[(&'static str, &'static str)]) -> (IpAddr, HeaderMap) {
        let trusted = Trusted::new(&[("10.0.0.0".parse().unwrap(), 8), ("fd00::".parse().unwrap(), 8)]);
        let link = Link::new(peer.parse().unwrap(), &trusted);
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let client = stamp(&mut headers, HeaderValue::from_static("gate.example"), &link, &trusted);
        (client, headers)
    }

    #[test]
    fn a_stranger_is_not_believed() {
        let (client, headers) = stamped(
            "192.0.2.7",
            &[("x-forwarded-for", "1.1.1.1"), ("x-forwarded-proto", "https"), ("x-forwarded-port", "443")],
        );
        assert_eq!(client, "192.0.2.7".parse::<IpAddr>().unwrap());
        assert_eq!(headers["x-forwarded-for"], "192.0.2.7");
        assert_eq!(headers["x-forwarded-proto"], "http");
        assert_eq!(headers["x-forwarded-host"], "gate.example");
        assert!(!headers.contains_key("x-forwarded-port"));
    }

    #[test]
    fn a_trusted_proxy_is_believed_up_to_the_first_stranger() {
        let (client, headers) = stamped(
            "10.1.2.3",
            &[
                ("x-forwarded-for", "6.6.6.6, 203.0.113.9:4711"),
                ("x-forwarded-for", "10.9.9.9"),
                ("x-forwarded-proto", "https"),
            ],
        );
        assert_eq!(client, "203.0.113.9".parse::<IpAddr>().unwrap());
        assert_eq!(headers["x-forwarded-for"], "6.6.6.6, 203.0.113.9:4711, 10.9.9.9, 10.1.2.3");
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers["x-forwarded-host"], "gate.example");
        let (client, headers) = stamped("fd00::1", &[("x-forwarded-for", "[2001:db8::5]:99")]);
        assert_eq!(client, "2001:db8::5".parse::<IpAddr>().unwrap());
        assert_eq!(headers["x-forwarded-for"], "[2001:db8::5]:99, fd00::1");
    }

    #[test]
    fn prefixes_of_every_length() {
        let any: IpAddr = "0.0.0.0".parse().unwrap();
        assert!(contains(any, 0, "8.8.8.8".parse().unwrap()));
        assert!(contains("::".parse().unwrap(), 0, "::1".parse().unwrap()));
        assert!(contains("192.168.1.0".parse().unwrap(), 31, "192.168.1.1".parse().unwrap()));
        assert!(!contains("192.168.1.0".parse().unwrap(), 32, "192.168.1.1".parse().unwrap()));
        assert!(!contains(any, 0, "::1".parse().unwrap()));
    }
}
