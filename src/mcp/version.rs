//! Protocol versions, and the era a request belongs to.

/// The first version of the stateless era.
pub const STATELESS: &str = "2026-07-28";

/// A version that is negotiated by `initialize`, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 2024-11-05.
    V2024_11_05,
    /// 2025-03-26: the first with Streamable HTTP; what a request without a version header speaks.
    V2025_03_26,
    /// 2025-06-18: no batches.
    V2025_06_18,
    /// 2025-11-25: core tasks.
    V2025_11_25,
    /// Anything newer that a server chose to negotiate by `initialize`.
    Later,
}

/// How a request finds its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// `initialize` and sessions.
    Handshake,
    /// Everything in each request (2026-07-28 and later).
    Stateless,
}

impl Version {
    /// One of the four versions of the handshake era.
    #[must_use]
    pub fn handshake(text: &str) -> Option<Self> {
        Some(match text {
            "2024-11-05" => Self::V2024_11_05,
            "2025-03-26" => Self::V2025_03_26,
            "2025-06-18" => Self::V2025_06_18,
            "2025-11-25" => Self::V2025_11_25,
            _ => return None,
        })
    }

    /// What a server negotiated: unknown dates are ordered like dates.
    #[must_use]
    pub fn negotiated(text: &str) -> Self {
        Self::handshake(text).unwrap_or(if text > "2025-11-25" { Self::Later } else { Self::V2025_03_26 })
    }

    /// A text that [`Version::negotiated`] reads as this version.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::Later => "later",
        }
    }
}

impl Era {
    /// The era of a request that names no live session: stateless if its header or `_meta` names a version that no
    /// handshake negotiates, or if it is `server/discover`.
    #[must_use]
    pub fn of(header: Option<&[u8]>, meta: Option<&str>, method: &str) -> Self {
        let foreign = |version: &str| Version::handshake(version).is_none();
        let header = header.map(|bytes| std::str::from_utf8(bytes).unwrap_or("?"));
        if header.is_some_and(foreign) || meta.is_some_and(foreign) || method == super::method::DISCOVER {
            Self::Stateless
        } else {
            Self::Handshake
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eras() {
        for (header, meta, method, era) in [
            (None, None, "tools/call", Era::Handshake),
            (Some("2025-11-25"), None, "tools/call", Era::Handshake),
            (Some("2026-07-28"), None, "tools/call", Era::Stateless),
            (Some("x"), None, "tools/call", Era::Stateless),
            (None, Some("2026-07-28"), "tools/call", Era::Stateless),
            (None, Some("2025-06-18"), "tools/call", Era::Handshake),
            (None, None, "server/discover", Era::Stateless),
        ] {
            assert_eq!(Era::of(header.map(str::as_bytes), meta, method), era, "{header:?} {meta:?} {method}");
        }
        assert_eq!(Era::of(Some(b"\xff"), None, "ping"), Era::Stateless);
    }

    #[test]
    fn versions_are_ordered() {
        assert!(Version::negotiated("2026-07-28") > Version::V2025_11_25);
        assert!(Version::negotiated("2025-06-18") < Version::V2025_11_25);
        assert_eq!(Version::negotiated("DRAFT"), Version::Later);
        for text in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2027-01-01"] {
            let version = Version::negotiated(text);
            assert_eq!(Version::negotiated(version.text()), version);
        }
    }
}
