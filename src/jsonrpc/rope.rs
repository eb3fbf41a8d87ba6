//! JSON text in pieces, so that a large result is not copied into every answer that carries it.

use bytes::{Bytes, BytesMut};

/// Pieces that make one JSON text when joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rope {
    pieces: Vec<Bytes>,
}

impl Rope {
    /// Adds a piece.
    #[must_use]
    pub fn with(mut self, piece: impl Into<Bytes>) -> Self {
        self.pieces.push(piece.into());
        self
    }

    /// Adds the pieces of another.
    #[must_use]
    pub fn with_all(mut self, other: Self) -> Self {
        self.pieces.extend(other.pieces);
        self
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces.
    #[must_use]
    pub fn into_pieces(self) -> Vec<Bytes> {
        self.pieces
    }

    /// The whole text, copied together.
    #[must_use]
    pub fn join(&self) -> Bytes {
        let mut whole = BytesMut::with_capacity(self.len());
        self.pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
        whole.freeze()
    }
}

impl From<String> for Rope {
    fn from(text: String) -> Self {
        Self::default().with(text)
    }
}

impl From<&'static str> for Rope {
    fn from(text: &'static str) -> Self {
        Self::default().with(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join() {
        let rope = Rope::from("{\"a\":").with(Bytes::from_static(b"1")).with_all(Rope::from("}"));
        assert_eq!((rope.len(), rope.join()), (7, Bytes::from_static(b"{\"a\":1}")));
        assert!(Rope::default().is_empty());
    }
}
