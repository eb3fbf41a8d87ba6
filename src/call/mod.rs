//! A request as the gateway sees it, and what goes back: no framing, no sockets.

mod answer;
mod error;

pub use crate::telemetry::metrics::Side;
pub use answer::{Answer, Body, BodyError, Event, Outgoing, PassBody, Step};
pub use error::Error;
