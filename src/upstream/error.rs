//! What can go wrong between taskgate and an upstream server.
//!
//! The one question that everybody asks of such an error is whether the call may have been executed: it decides
//! between "try again" and "outcome unknown".

use std::error::Error as StdError;
use std::io;

/// How long a text from outside may be in an error.
const TEXT: usize = 160;

/// Why there is no answer from the upstream. The texts are short and hold neither addresses nor credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The client could not be made: trust anchors cannot be read.
    #[error("cannot set up the connection to the upstream: {0}")]
    Setup(String),
    /// No byte of the request was sent: name not found, refused, TLS failed, connecting took too long.
    #[error("upstream cannot be reached: {0}")]
    Unreachable(String),
    /// Bytes may have left and no complete answer came.
    #[error("connection to the upstream broke, outcome unknown: {0}")]
    Broken(String),
    /// The answer is encoded in a way that cannot be decoded.
    #[error("upstream answered with unknown content encoding {0}")]
    Encoding(String),
    /// The answer, or one event of it, is larger than allowed.
    #[error("upstream answered with more than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The event stream ended before the answer and could not be resumed.
    #[error("upstream ended its event stream without an answer, outcome unknown")]
    Cut,
    /// It asked something that nobody answered, and cannot be told so.
    #[error("upstream asked {0}, which nobody answered")]
    Unanswered(String),
    /// The event stream cannot be taken up with this credential: 401 or 403.
    #[error("upstream refused the credential when its event stream was taken up, outcome unknown")]
    Refused,
    /// What came is not what HTTP or the event stream format allow.
    #[error("upstream broke the protocol: {0}")]
    Protocol(String),
}

impl Error {
    /// Whether the upstream may have executed the request.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Setup(_) | Self::Unreachable(_) => false,
            Self::Broken(_)
            | Self::Encoding(_)
            | Self::TooLarge { .. }
            | Self::Cut
            | Self::Unanswered(_)
            | Self::Refused
            | Self::Protocol(_) => true,
        }
    }

    /// The connection broke while a body was read.
    pub(super) fn broken(error: &(dyn StdError + 'static)) -> Self {
        Self::Broken(reason(error))
    }

    /// A content coding nobody knows, by its name as the upstream wrote it.
    pub(super) fn encoding(name: &[u8]) -> Self {
        Self::Encoding(short(&name.escape_ascii().to_string()))
    }

    /// Sorts what the HTTP client reports by whether bytes may have left.
    pub(super) fn sending(error: &hyper_util::client::legacy::Error) -> Self {
        let cause = error.source().and_then(|source| source.downcast_ref::<hyper::Error>());
        match cause {
            _ if error.is_connect() => Self::Unreachable(reason(error)),
            // hyper says "cancelled" only of a request that it hands back untouched; an error without a cause is
            // a request that never got as far as a connection.
            Some(cause) if cause.is_canceled() => Self::Unreachable("connection closed before the request".into()),
            None if error.source().is_none() => Self::Unreachable("request cannot be sent".into()),
            Some(cause) if cause.is_parse() => Self::Protocol("not an HTTP answer".into()),
            _ => Self::Broken(reason(error)),
        }
    }
}

/// The innermost cause, in its own words.
pub(super) fn reason(error: &(dyn StdError + 'static)) -> String {
    let mut cause = error;
    loop {
        // An I/O error that wraps another error does not name it as its source.
        let wrapped = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = match (wrapped, cause.source()) {
            (Some(inner), _) => inner,
            (None, Some(source)) => source,
            (None, None) => break,
        };
    }
    let text = cause.to_string();
    if cause.is::<rustls::Error>() { short(&format!("TLS: {text}")) } else { short(&text) }
}

fn short(text: &str) -> String {
    text.chars().take(TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_never_sent_cannot_have_run() {
        assert!(!Error::Unreachable(String::new()).may_have_run());
        assert!(!Error::Setup(String::new()).may_have_run());
        for error in [
            Error::Broken(String::new()),
            Error::Encoding(String::new()),
            Error::TooLarge { limit: 1 },
            Error::Cut,
            Error::Refused,
            Error::Protocol(String::new()),
        ] {
            assert!(error.may_have_run(), "{error}");
        }
    }

    #[test]
    fn the_innermost_cause_speaks() {
        let tls = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, rustls::Error::DecryptError));
        assert_eq!(reason(&tls), "TLS: cannot decrypt peer's message");
        assert_eq!(reason(&io::Error::other("x".repeat(1000))).len(), TEXT);
    }
}
