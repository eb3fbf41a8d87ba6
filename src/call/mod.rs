//! A request as the gateway sees it, and what goes back: no framing, no sockets.

mod answer;
mod error;
mod log;
mod outlet;
mod streams;

pub use crate::telemetry::metrics::Side;
pub use answer::{Answer, Body, BodyError, Event, Outgoing, PassBody, Step};
pub use error::{Error, Standing};
pub use log::{Follower, Log, Origin, Priming};
pub use outlet::{Outlet, Steps, Waiting, outlet};
pub use streams::{EventId, Streams};
