//! Base64 of RFC 4648, padded, as header values carry it; a few lines, since nothing else here needs it.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text of `bytes`.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = usize::try_from(bits >> (18 - 6 * place) & 63).expect("six bits");
            text.push(if place <= chunk.len() { char::from(ALPHABET[digit]) } else { '=' });
        }
    }
    text
}

/// The bytes that [`encode`] writes as `text`; `None` for any other text, also one that spells the same bytes in
/// another way: two readers could disagree on it.
pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in text.chunks(4) {
        let padding = chunk.iter().rev().take_while(|digit| **digit == b'=').count();
        let mut bits = 0_u32;
        for digit in &chunk[..chunk.len() - padding] {
            let value = ALPHABET.iter().position(|known| known == digit)?;
            bits = bits << 6 | u32::try_from(value).ok()?;
        }
        if chunk.len() != 4 || padding > 2 {
            return None;
        }
        bits <<= 6 * padding;
        bytes.extend_from_slice(&bits.to_be_bytes()[1..4 - padding]);
    }
    (encode(&bytes).as_bytes() == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn as_the_rfc_says() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
            ("\u{fb}\u{ff}", "w7vDvw=="),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes.as_bytes()));
        }
        for odd in ["Z", "Zg", "Zg=", "Zh==", "====", "Z===", "Zg==Zg==", "Zg= =", "Zm8\u{e9}", "%%%%"] {
            assert_eq!(decode(odd.as_bytes()), None, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn there_and_back(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(decode(encode(&bytes).as_bytes()), Some(bytes));
        }

        #[test]
        fn never_panics(text in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(bytes) = decode(&text) {
                prop_assert_eq!(encode(&bytes).into_bytes(), text);
            }
        }
    }
}
