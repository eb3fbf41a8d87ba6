//! Who may see a task.

/// How the owner of a task is decided (`[tasks] owner`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnerMode {
    /// The credential that created it, or its session; with neither, whoever holds the id.
    #[default]
    Auto,
    /// The session only.
    Session,
    /// The verified principal only.
    Principal,
    /// Whoever holds the id.
    Id,
}
