//! Error codes that the protocol adds to those of JSON-RPC.

/// The headers of a request say something else than its body (2026-07-28).
pub const HEADER_MISMATCH: i64 = -32020;
/// The client did not declare what this request needs (2026-07-28).
pub const MISSING_CAPABILITY: i64 = -32021;
/// The version of the request is not spoken here (2026-07-28).
pub const UNSUPPORTED_VERSION: i64 = -32022;

/// Whether a code is one that only the stateless era has.
#[must_use]
pub fn is_stateless(code: i64) -> bool {
    matches!(code, HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION)
}

/// There is no such resource (handshake era; invalid parameters since 2026-07-28).
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// A person has to visit an address first (2025-11-25).
pub const URL_ELICITATION_REQUIRED: i64 = -32042;
