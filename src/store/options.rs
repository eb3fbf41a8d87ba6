//! What the store needs to know from the configuration.

/// `[store]` and `[tasks] max_retained`, resolved. The memory engine is the only one so far.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of finished results kept at most.
    pub max_retained: u64,
}
