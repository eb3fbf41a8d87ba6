//! Who may be asked for, and by whom: the `Host` and `Origin` guards.
//!
//! They are the defence against DNS rebinding that MCP's transport asks of servers: a page that makes its own name
//! resolve to 127.0.0.1 still sends that name in `Host`.

use std::net::IpAddr;

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Request, Version};

use super::Options;
use super::refusal::Refusal;

/// Which `Host` and `Origin` values are ours.
#[derive(Debug)]
pub(super) struct Names {
    loopback_only: bool,
    public_host: Option<String>,
    any_origin: bool,
    loopback_origins: bool,
    origins: Vec<String>,
}

impl Names {
    pub(super) fn new(options: &Options) -> Self {
        let mut origins = options.allowed_origins.clone();
        if let Some(url) = &options.public_url
            && let (Some(scheme), Some(authority)) = (url.scheme_str(), url.authority())
        {
            let authority = authority.as_str();
            let default_port = if scheme == "https" { ":443" } else { ":80" };
            // Browsers leave the default port out.
            origins.push(format!("{scheme}://{}", authority.strip_suffix(default_port).unwrap_or(authority)));
        }
        Self {
            loopback_only: options.listen.ip().to_canonical().is_loopback(),
            public_host: options.public_url.as_ref().and_then(|url| url.host()).map(str::to_owned),
            any_origin: origins.iter().any(|origin| origin == "*"),
            loopback_origins: origins.iter().any(|origin| origin == "localhost"),
            origins,
        }
    }

    /// The one `Host` of a request (RFC 9112 §3.2), if it is ours.
    pub(super) fn host<B>(&self, request: &Request<B>) -> Result<HeaderValue, Refusal> {
        let host = single_host(request).ok_or(Refusal::Host)?;
        if self.loopback_only {
            let name = host.to_str().map_or("", without_port);
            let is_public = self.public_host.as_ref().is_some_and(|public| public.eq_ignore_ascii_case(name));
            if !is_public && !is_loopback(name) {
                return Err(Refusal::ForeignHost);
            }
        }
        Ok(host)
    }

    /// The page that asks, if one does and it may.
    pub(super) fn origin(&self, headers: &HeaderMap) -> Result<Option<HeaderValue>, Refusal> {
        let mut lines = headers.get_all(ORIGIN).iter();
        let Some(origin) = lines.next() else { return Ok(None) };
        let is_allowed = self.any_origin || origin.to_str().is_ok_and(|origin| self.allows(origin));
        if is_allowed && lines.next().is_none() { Ok(Some(origin.clone())) } else { Err(Refusal::Origin) }
    }

    fn allows(&self, origin: &str) -> bool {
        let listed = self.origins.iter().any(|known| known.trim_end_matches('/').eq_ignore_ascii_case(origin));
        listed || (self.loopback_origins && is_loopback_origin(origin))
    }
}

fn single_host<B>(request: &Request<B>) -> Option<HeaderValue> {
    let mut lines = request.headers().get_all(HOST).iter();
    let (first, second) = (lines.next(), lines.next());
    let host = match (first, request.uri().authority()) {
        _ if second.is_some() => return None,
        (Some(host), None) => host.clone(),
        (Some(host), Some(target)) if host.as_bytes().eq_ignore_ascii_case(target.as_str().as_bytes()) => host.clone(),
        // In HTTP/2 `:authority` takes the place of `Host` (RFC 9113 §8.3.1).
        (None, Some(target)) if request.version() == Version::HTTP_2 => target.as_str().parse().ok()?,
        _ => return None,
    };
    let is_legal = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:[]%".contains(byte);
    (!host.is_empty() && host.as_bytes().iter().all(is_legal)).then_some(host)
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') && (!name.contains(':') || name.ends_with(']')) => name,
        _ => authority,
    }
}

fn is_loopback_origin(origin: &str) -> bool {
    let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    host.is_some_and(|host| is_loopback(without_port(host)))
}

fn is_loopback(name: &str) -> bool {
    let name = name.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = name.parse::<IpAddr>() {
        return address.to_canonical().is_loopback();
    }
    // Names under `localhost` never leave the machine (RFC 6761 §6.3).
    let name = name.trim_end_matches('.');
    name.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case("localhost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_loopback_when_it_sees_it() {
        for name in
            ["localhost", "LOCALHOST:8080", "app.localhost", "localhost.", "127.0.0.1", "127.8.8.8:1", "[::1]:80"]
        {
            assert!(is_loopback(without_port(name)), "{name}");
        }
        for name in
            ["", "example.com", "localhost.example.com", "127.0.0.1.nip.io", "10.0.0.1", "[::2]:80", "notlocalhost"]
        {
            assert!(!is_loopback(without_port(name)), "{name}");
        }
    }

    #[test]
    fn an_origin_is_a_scheme_and_a_host() {
        assert!(is_loopback_origin("http://localhost:6274"));
        assert!(is_loopback_origin("https://[::1]"));
        for origin in
            ["null", "localhost", "file://localhost", "http://localhost.evil.example", "http://evil/localhost"]
        {
            assert!(!is_loopback_origin(origin), "{origin}");
        }
    }
}
