//! Which dialect a request is answered in.

/// The shape of a deferral and of what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Tasks of the extension `io.modelcontextprotocol/tasks`.
    Ext,
    /// A job handle, and tools to read it.
    Job,
}

/// What a caller said it can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// The session declared the extension in `initialize`.
    pub by_session: bool,
    /// This request declares it in `_meta`.
    pub by_request: bool,
}

impl Dialect {
    /// One word for metrics and logs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Ext => "ext",
            Self::Job => "job",
        }
    }
}

/// The dialect of a request of the handshake era. A task is given only to who asked for it or declared it.
#[must_use]
pub fn select(declared: Declared, handshake_extension: bool) -> Dialect {
    if handshake_extension && (declared.by_session || declared.by_request) { Dialect::Ext } else { Dialect::Job }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_only_for_those_who_declare_them() {
        for (by_session, by_request, allowed, dialect) in [
            (false, false, true, Dialect::Job),
            (true, false, true, Dialect::Ext),
            (false, true, true, Dialect::Ext),
            (true, true, false, Dialect::Job),
        ] {
            assert_eq!(select(Declared { by_session, by_request }, allowed), dialect);
        }
    }
}
