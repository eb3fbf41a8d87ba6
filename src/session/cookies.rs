//! Cookies of one upstream session: kept for load balancers that pin sessions, never shown to a client.

use http::HeaderValue;

/// Name and value pairs, in the order they were set.
#[derive(Debug, Default)]
pub(super) struct Cookies(Vec<(String, String)>);

impl Cookies {
    /// Takes in one `Set-Cookie`: only name and value count, and `Max-Age=0` removes.
    pub(super) fn set(&mut self, header: &HeaderValue) {
        let Ok(text) = header.to_str() else { return };
        let mut parts = text.split(';').map(str::trim);
        let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else { return };
        self.0.retain(|(known, _)| known != name);
        if !parts.any(|part| part.eq_ignore_ascii_case("max-age=0")) {
            self.0.push((name.to_owned(), value.to_owned()));
        }
    }

    /// The `Cookie` header to send.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        if self.0.is_empty() {
            return None;
        }
        let pairs: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        HeaderValue::from_str(&pairs.join("; ")).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_latest_and_removes() {
        let mut cookies = Cookies::default();
        for text in ["a=1; Path=/; HttpOnly", "b=2", "a=3", "junk"] {
            cookies.set(&HeaderValue::from_static(text));
        }
        assert_eq!(cookies.header().unwrap(), "b=2; a=3");
        cookies.set(&HeaderValue::from_static("b=; Max-Age=0"));
        cookies.set(&HeaderValue::from_static("a=; Max-Age=0"));
        assert_eq!(cookies.header(), None);
    }
}
