//! The server that the official conformance suite is run against, behind taskgate and without it.
//!
//! It is written with the official Rust SDK, answers each call when the work is done, and knows nothing of tasks. It
//! speaks every revision from one to another, by default those of the handshake.

#![allow(clippy::disallowed_methods, clippy::print_stdout)] // it has no work to drain, and says its address
#![allow(deprecated)] // what 2026-07-28 removes is still in the revisions before

mod catalog;
mod questions;
mod server;
mod skills;
mod tools;

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rmcp::model::ProtocolVersion;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;

use crate::server::Server;

/// How soon a client is to come back to a stream that was closed.
const RETRY: Duration = Duration::from_millis(300);

/// The server of the conformance runs.
#[derive(Parser)]
struct Arguments {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The oldest revision to speak.
    #[arg(long, default_value = "2024-11-05")]
    oldest: String,
    /// The newest revision to speak.
    #[arg(long, default_value = "2025-11-25")]
    newest: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { listen, oldest, newest } = Arguments::parse();
    let mut spoken = ProtocolVersion::KNOWN_VERSIONS.to_vec();
    spoken.retain(|version| (&*oldest..=&*newest).contains(&version.as_str()));
    let listener = TcpListener::bind(listen).await?;
    println!("http://{}/mcp", listener.local_addr()?);
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.sse_retry = Some(RETRY);
    let sessions = Arc::new(sessions);
    let config = StreamableHttpServerConfig::default().with_sse_retry(Some(RETRY));
    let server = Server::new(spoken, sessions.clone());
    let service = StreamableHttpService::new(move || Ok(server.clone()), sessions, config);
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let builder = auto::Builder::new(TokioExecutor::new());
            drop(builder.serve_connection(TokioIo::new(socket), service).await);
        });
    }
}
