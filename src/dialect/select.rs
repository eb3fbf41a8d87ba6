//! Which dialect a request is answered in.

use crate::mcp::Version;
use crate::task::Made;

/// The shape of a deferral and of what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Tasks of the extension `io.modelcontextprotocol/tasks`.
    Ext,
    /// Tasks of 2025-11-25.
    Core,
    /// A job handle, and tools to read it.
    Job,
}

/// What a caller said it can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The version that its session negotiated, else the one in its header.
    pub version: Version,
    /// Its call has `task`, an object.
    pub asks_for_task: bool,
    /// It declares the extension: its session did in `initialize`, or the request does in `_meta`.
    pub extension: bool,
}

impl Dialect {
    /// One word for metrics and logs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Ext => "ext",
            Self::Core => "core",
            Self::Job => "job",
        }
    }

    /// How a task is announced in this dialect.
    #[must_use]
    pub fn makes(self) -> Made {
        match self {
            Self::Ext => Made::Ext,
            Self::Core => Made::Core,
            Self::Job => Made::Job,
        }
    }
}

/// The dialect of a call of the handshake era. A task is given only to who asked for it or declared it.
#[must_use]
pub fn select(declared: Declared) -> Dialect {
    match declared {
        Declared { version, asks_for_task: true, .. } if version >= Version::V2025_11_25 => Dialect::Core,
        Declared { extension: true, .. } => Dialect::Ext,
        Declared { .. } => Dialect::Job,
    }
}

/// The dialect in which `tasks/*` tells of a task: the record decides, and of a job the version.
#[must_use]
pub fn reading(made: Made, version: Version) -> Dialect {
    match made {
        Made::Core => Dialect::Core,
        Made::Job if version >= Version::V2025_11_25 => Dialect::Core,
        Made::Ext | Made::Job => Dialect::Ext,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Version::{V2025_06_18, V2025_11_25};

    #[test]
    fn tasks_only_for_those_who_ask_or_declare() {
        for (version, asks_for_task, extension, dialect) in [
            (V2025_11_25, false, false, Dialect::Job),
            (V2025_11_25, true, false, Dialect::Core),
            (V2025_11_25, true, true, Dialect::Core),
            (V2025_11_25, false, true, Dialect::Ext),
            (V2025_06_18, true, false, Dialect::Job),
            (V2025_06_18, true, true, Dialect::Ext),
            (Version::Later, true, false, Dialect::Core),
        ] {
            assert_eq!(select(Declared { version, asks_for_task, extension }), dialect, "{version:?}");
        }
    }

    #[test]
    fn the_record_decides_how_it_is_read() {
        for (made, version, dialect) in [
            (Made::Core, V2025_06_18, Dialect::Core),
            (Made::Ext, V2025_11_25, Dialect::Ext),
            (Made::Job, V2025_11_25, Dialect::Core),
            (Made::Job, V2025_06_18, Dialect::Ext),
        ] {
            assert_eq!(reading(made, version), dialect, "{made:?} {version:?}");
        }
    }
}
