//! What can go wrong with a request, and whose side it was.

use std::time::Duration;

use crate::task::{Failure, Reason};
use crate::telemetry::metrics::Side;

/// How a caller stands: it decides the HTTP status of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// In a session: errors have status 200, since clients drop a session on many others.
    Session,
    /// Outside of any session, in the handshake era.
    Outside,
    /// In the stateless era.
    Stateless,
}

/// Why a request has no answer of the upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request makes no sense.
    #[error("{0}")]
    InvalidRequest(String),
    /// The method is not answered here.
    #[error("{0}")]
    MethodNotFound(String),
    /// The parameters do not fit.
    #[error("{0}")]
    InvalidParams(String),
    /// The request lacks what its era asks of every request.
    #[error("{0}")]
    InvalidEnvelope(String),
    /// The headers of the request say something else than its body.
    #[error("{0}")]
    HeaderMismatch(String),
    /// The client has not declared the tasks extension.
    #[error("{0}: declare the extension io.modelcontextprotocol/tasks in this request's clientCapabilities")]
    TasksUndeclared(String),
    /// The protocol version is none that is spoken here.
    #[error("protocol version {requested} is not spoken here")]
    UnsupportedVersion {
        /// The version that the request names.
        requested: String,
    },
    /// The session was deleted by its client.
    #[error("this session has ended; send initialize to start a new one")]
    SessionEnded,
    /// The process is going down.
    #[error("the proxy is shutting down; send the request again in a moment")]
    ShuttingDown,
    /// Tasks cannot be read now.
    #[error("tasks cannot be read at the moment; try again shortly")]
    StoreUnavailable,
    /// A call that can only run as a task finds no place.
    #[error("too many tasks are running; wait until one has ended, or call without `task`")]
    TooManyTasks,
    /// Nothing was sent.
    #[error("the upstream server cannot be reached: {0}; check that it runs, then call again")]
    Unreachable(String),
    /// The upstream's answer is none.
    #[error("the upstream server gave no valid answer: {text}")]
    Protocol {
        /// What is wrong with it.
        text: String,
        /// Its HTTP status, where that says something.
        status: Option<u16>,
    },
    /// The request may have been executed.
    #[error("outcome unknown: {0}; it may have run, so check before calling again")]
    OutcomeUnknown(String),
    /// The upstream asked something that cannot be declined in words, and nobody answered.
    #[error(
        "the upstream server asked for {0}, which was declined or not answered in time; call again to be asked again"
    )]
    Unanswered(String),
    /// It ran longer than it may.
    #[error("exceeded max runtime of {}; the upstream call was cancelled", humantime::format_duration(*.0))]
    MaxRuntime(Duration),
    /// The answer is larger than what is kept.
    #[error("result too large: more than {limit} bytes; ask for less, or raise max_result")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
}

impl Error {
    /// Whose side failed: what has no word of its own is a mistake of the client's.
    #[must_use]
    pub fn side(&self) -> Side {
        match self.reason() {
            None | Some(Reason::InputTimeout) => Side::Client,
            Some(
                Reason::ShuttingDown
                | Reason::StoreUnavailable
                | Reason::TooManyTasks
                | Reason::MaxRuntime
                | Reason::TooLarge,
            ) => Side::Gateway,
            Some(Reason::UpstreamUnreachable | Reason::UpstreamProtocol | Reason::OutcomeUnknown) => Side::Upstream,
        }
    }

    /// The word for machines; none where the code says it all.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        Some(match self {
            Self::InvalidRequest(_)
            | Self::MethodNotFound(_)
            | Self::InvalidParams(_)
            | Self::InvalidEnvelope(_)
            | Self::HeaderMismatch(_)
            | Self::TasksUndeclared(_)
            | Self::UnsupportedVersion { .. }
            | Self::SessionEnded => return None,
            Self::ShuttingDown => Reason::ShuttingDown,
            Self::StoreUnavailable => Reason::StoreUnavailable,
            Self::TooManyTasks => Reason::TooManyTasks,
            Self::Unreachable(_) => Reason::UpstreamUnreachable,
            Self::Protocol { .. } => Reason::UpstreamProtocol,
            Self::OutcomeUnknown(_) => Reason::OutcomeUnknown,
            Self::Unanswered(_) => Reason::InputTimeout,
            Self::MaxRuntime(_) => Reason::MaxRuntime,
            Self::TooLarge { .. } => Reason::TooLarge,
        })
    }

    /// The same as the failure of a task.
    #[must_use]
    pub fn into_failure(self) -> Failure {
        Failure::Lost { reason: self.reason().unwrap_or(Reason::OutcomeUnknown), text: self.to_string() }
    }
}
