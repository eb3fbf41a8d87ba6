//! Host names to addresses, without the C library.
//!
//! A static binary has no `getaddrinfo` worth the name; the system's `resolv.conf` and hosts file are read all the same.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, NameServerConfig, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hyper_util::client::legacy::connect::dns::Name;
use tower::Service;

use super::error::reason;

/// Resolves host names by the system's configuration. Cheap to clone; clones share one cache.
#[derive(Clone)]
pub struct Resolver {
    inner: Arc<TokioResolver>,
}

impl Resolver {
    /// Reads the system's configuration. Where there is none, the name server on this host is asked, as the C
    /// library would.
    ///
    /// # Errors
    /// The resolver cannot be built from the configuration.
    pub fn new() -> io::Result<Self> {
        Self::from_builder(TokioResolver::builder_tokio()).map_err(|error| io::Error::other(reason(&error)))
    }

    fn from_builder(system: Result<Builder, NetError>) -> Result<Self, NetError> {
        let mut builder = system.unwrap_or_else(|error| {
            tracing::warn!(error = %reason(&error), "no usable resolver configuration: asking 127.0.0.1");
            let local = NameServerConfig::udp_and_tcp(IpAddr::V4(Ipv4Addr::LOCALHOST));
            TokioResolver::builder_with_config(
                ResolverConfig::from_name_servers(vec![local]),
                TokioRuntimeProvider::default(),
            )
        });
        builder.options_mut().ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        Ok(Self { inner: Arc::new(builder.build()?) })
    }

    /// All addresses of `host`, with port 0. Address literals are returned as they are. Cancel safe.
    ///
    /// # Errors
    /// The name does not exist, or no name server answers.
    pub async fn resolve(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = literal.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, 0)]);
        }
        let found = self.inner.lookup_ip(host).await.map_err(|error| {
            tracing::debug!(host, error = %reason(&error), "name not resolved");
            io::Error::new(io::ErrorKind::NotFound, "host name cannot be resolved")
        })?;
        Ok(found.iter().map(|address| SocketAddr::new(address, 0)).collect())
    }
}

type Builder = hickory_resolver::ResolverBuilder<TokioRuntimeProvider>;

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolver = self.clone();
        Box::pin(async move { resolver.resolve(name.as_str()).await.map(Vec::into_iter) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without_configuration() -> Resolver {
        Resolver::from_builder(Err(NetError::from("no resolv.conf"))).unwrap()
    }

    #[tokio::test]
    async fn localhost_and_literals_need_no_name_server() {
        let resolver = without_configuration();
        let local = resolver.resolve("localhost").await.unwrap();
        assert!(local.iter().all(|address| address.ip().is_loopback()) && !local.is_empty(), "{local:?}");
        assert_eq!(resolver.resolve("192.0.2.7").await.unwrap(), ["192.0.2.7:0".parse().unwrap()]);
        assert_eq!(resolver.resolve("[2001:db8::1]").await.unwrap(), ["[2001:db8::1]:0".parse().unwrap()]);
    }

    #[tokio::test]
    async fn an_impossible_name_is_an_error() {
        // `.invalid` is answered "no such name" without asking anybody (RFC 6761).
        let error = without_configuration().resolve("nowhere.invalid").await.unwrap_err();
        assert_eq!(error.to_string(), "host name cannot be resolved");
    }

    #[tokio::test]
    async fn the_system_has_a_resolver() {
        let found = Resolver::new().unwrap().resolve("localhost").await.unwrap();
        assert!(found.iter().any(|address| address.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST)), "{found:?}");
    }
}
