//! Log output: one format for people, one for machines.

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// `[log]`, resolved.
#[derive(Clone, Debug)]
pub struct Options {
    /// How lines look.
    pub format: Format,
    /// Filter in the style of `RUST_LOG`.
    pub level: String,
}
