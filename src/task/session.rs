//! What is stored of a session, so that calls on it are deferred in the same way after a restart.

use crate::mcp::{ClientHello, Era, ServerHello};

use super::{Fingerprint, Timestamp};

/// What the two sides of a session said, and how long that is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// What the client said in `initialize`.
    pub client: ClientHello,
    /// What the upstream answered.
    pub server: ServerHello,
    /// The era in which its requests go upstream.
    pub era: Era,
    /// Whether the id is taskgate's own, unknown to the upstream.
    pub minted: bool,
    /// The keyed hash of the credential that it began with; `None` if it began without one.
    pub credential: Option<Fingerprint>,
    /// Whether its client deleted it.
    pub ended: bool,
    /// When it may be forgotten.
    pub expires: Timestamp,
}
