//! Everything that speaks HTTP to upstream servers.
//!
//! One small seam, so that no other room knows which client carries the calls: [`Client`] sends one request, an
//! [`Exchange`] is one call in flight whose answer is JSON or an event stream, [`events`] opens a stream to listen to.

mod ask;
mod body;
mod client;
mod connect;
mod error;
mod events;
mod exchange;
mod facts;
pub mod headers;
mod leg;
mod options;
mod outbound;
mod public;
mod redirect;
mod resolver;
mod resume;
mod routed;
mod sse;
#[cfg(test)]
pub(crate) mod testing;
mod tls;
mod ways;

pub use ask::{ask, list_on, list_tools};
pub use body::Body;
pub use client::Client;
pub use error::Error;
pub use events::{EventStream, Opened, events};

pub use exchange::{Arrived, Exchange, Kind, Limits};
pub use facts::{Facts, Speaks};
pub use leg::{Leg, Streams, Upstream};
pub use options::{Bridge, BridgeSessions, Bridging, MaxSessions, Options};
pub use outbound::Outbound;
pub use public::Public;
pub use resolver::Resolver;
pub use resume::Resume;
pub use sse::Decoder;
pub use ways::Way;
