//! An upstream as clients reach it: what it says of its own address, said of the address that they have.
//!
//! A server behind taskgate names an address that its clients may not reach, or a `resource` that is not what they call:
//! they must refuse the metadata then (RFC 9728, section 3.3). Only its own address is replaced; all else is left alone.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderValue, StatusCode, Uri};

use super::{Options, redirect};
use crate::jsonrpc::{Edit, members, quote, splice};

/// Where a protected resource's metadata is, followed by the resource's path (RFC 9728, section 3.1).
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// The parameter of a challenge that points to it (section 5.1).
const PARAMETER: &[u8] = b"resource_metadata";

/// One upstream's address and the one that its clients use.
#[derive(Clone, Debug)]
pub struct Public {
    /// `https://host[:port]`, as clients reach taskgate.
    origin: String,
    /// The path that they call, empty for the root.
    path: String,
    /// Where the upstream is.
    own: Uri,
    /// Its path there, empty for the root.
    own_path: String,
}

impl Public {
    /// `None` where nobody has configured how clients reach us.
    #[must_use]
    pub fn new(options: &Options) -> Option<Self> {
        let url = options.public_url.as_ref()?;
        Some(Self {
            origin: format!("{}://{}", url.scheme_str()?, url.authority()?),
            path: options.path.trim_end_matches('/').to_owned(),
            own: options.url.clone(),
            own_path: options.url.path().trim_end_matches('/').to_owned(),
        })
    }

    /// Where the upstream has the resource metadata that clients find at `path`; other paths are the same there.
    #[must_use]
    pub fn path_there<'a>(&self, path: &'a str) -> Cow<'a, str> {
        moved(path, &self.path, &self.own_path)
    }

    /// Whether resource metadata is what stands at `path`.
    #[must_use]
    pub fn is_metadata(path: &str) -> bool {
        path.strip_prefix(METADATA).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Resource metadata whose `resource` is what clients call, if it was the upstream's own.
    #[must_use]
    pub fn document(&self, text: &Bytes) -> Bytes {
        let Some(members) = std::str::from_utf8(text).ok().and_then(members) else { return text.clone() };
        let is_own =
            |value| serde_json::from_str::<String>(value).is_ok_and(|url| self.after_authority(&url).is_some());
        let path = if self.path.is_empty() { "/" } else { &self.path };
        let resource = quote(&format!("{}{path}", self.origin));
        let own = members.into_iter().filter(|member| member.name == "resource" && is_own(member.value));
        splice(text, own.map(|member| Edit::new(member.value_at, &*resource)).collect())
    }

    /// Makes the challenges of an answer point to where clients find the metadata.
    pub(super) fn challenges(&self, status: StatusCode, headers: &mut HeaderMap) {
        if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return;
        }
        for (_, value) in headers.iter_mut().filter(|(name, _)| *name == WWW_AUTHENTICATE) {
            if let Ok(edited) = HeaderValue::from_maybe_shared(self.challenge(value.as_bytes())) {
                *value = edited;
            }
        }
    }

    /// One header of challenges (RFC 9110, section 11.6.1).
    fn challenge(&self, header: &[u8]) -> Bytes {
        let mut edited = Vec::with_capacity(header.len());
        let mut copied = 0;
        for at in metadata_values(header) {
            let Some(url) = self.parameter(&header[at.clone()]) else { continue };
            edited.extend_from_slice(&header[copied..at.start]);
            edited.extend_from_slice(url.as_bytes());
            copied = at.end;
        }
        edited.extend_from_slice(&header[copied..]);
        edited.into()
    }

    /// The value of the parameter, if it changes.
    fn parameter(&self, value: &[u8]) -> Option<String> {
        let is_quoted = value.first() == Some(&b'"');
        let url = if is_quoted { unquoted(value)? } else { value.to_vec() };
        let url = std::str::from_utf8(&url).ok()?;
        let rest = self.after_authority(url)?;
        let (path, tail) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
        let url = format!("{}{}{tail}", self.origin, moved(path, &self.own_path, &self.path));
        // A comma ends what is not quoted.
        if is_quoted || url.contains(',') {
            return Some(format!("\"{}\"", url.replace('\\', r"\\").replace('"', "\\\"")));
        }
        Some(url)
    }

    /// What follows the authority of a URL on the upstream's server.
    fn after_authority<'a>(&self, url: &'a str) -> Option<&'a str> {
        let (scheme, rest) = url.split_once("://")?;
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let server: Uri = format!("{scheme}://{authority}").parse().ok()?;
        (!authority.contains('@') && redirect::same_server(&self.own, &server)).then_some(rest)
    }
}

/// The path of the metadata of the resource at `to`, where `path` is that of the one at `from`.
fn moved<'a>(path: &'a str, from: &str, to: &str) -> Cow<'a, str> {
    match path.strip_prefix(METADATA).and_then(|suffix| suffix.strip_prefix(from)) {
        Some(slash @ ("" | "/")) => Cow::Owned(format!("{METADATA}{to}{slash}")),
        _ => Cow::Borrowed(path),
    }
}

/// Where the values of the parameters lie that point to metadata, with their quotes.
fn metadata_values(header: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < header.len() {
        let name = at..until(header, at, b" \t,=\"");
        let equals = after_blanks(header, name.end);
        if name.is_empty() || header.get(equals) != Some(&b'=') {
            // A scheme, a token by itself, what separates them, or a stray quoted string.
            at = if name.is_empty() { value_end(header, at).max(at + 1) } else { name.end };
            continue;
        }
        let start = after_blanks(header, equals + 1);
        at = value_end(header, start);
        if header[name].eq_ignore_ascii_case(PARAMETER) {
            found.push(start..at);
        }
    }
    found
}

/// Where the quoted string or the bare value ends that begins at `start`.
fn value_end(header: &[u8], start: usize) -> usize {
    if header.get(start) != Some(&b'"') {
        return until(header, start, b" \t,");
    }
    let mut at = start + 1;
    while at < header.len() && header[at] != b'"' {
        at += if header[at] == b'\\' { 2 } else { 1 };
    }
    header.len().min(at + 1)
}

fn until(header: &[u8], start: usize, stops: &[u8]) -> usize {
    header[start..].iter().position(|byte| stops.contains(byte)).map_or(header.len(), |length| start + length)
}

fn after_blanks(header: &[u8], start: usize) -> usize {
    header[start..].iter().position(|byte| !b" \t".contains(byte)).map_or(header.len(), |length| start + length)
}

/// What a quoted string says; `None` if it does not end.
fn unquoted(text: &[u8]) -> Option<Vec<u8>> {
    let mut said = Vec::with_capacity(text.len());
    let mut bytes = text[1..].iter();
    loop {
        match bytes.next()? {
            b'"' => return Some(said),
            b'\\' => said.push(*bytes.next()?),
            byte => said.push(*byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::testing;

    fn public(url: &'static str, path: &str) -> Public {
        let public_url = Some(Uri::from_static("https://gate.example/ignored"));
        let options = Options { path: path.into(), public_url, ..testing::options(&Uri::from_static(url)) };
        Public::new(&options).unwrap()
    }

    #[test]
    fn nothing_is_replaced_unless_it_is_known_by_what() {
        assert!(Public::new(&testing::options(&Uri::from_static("http://in:1/mcp"))).is_none());
    }

    #[test]
    fn b86_challenges_point_to_the_address_that_clients_have() {
        const THERE: &str = "http://in:1/.well-known/oauth-protected-resource/mcp";
        const HERE: &str = "https://gate.example/.well-known/oauth-protected-resource/solver";
        // `@` stands for the URL: all around it stays.
        for header in [
            r#"Bearer resource_metadata="@""#,
            r#"Bearer realm="a, b", resource_metadata="@", scope="x y",error="invalid_token""#,
            r#"Bearer Resource_Metadata = "@" , x=y"#,
            "Bearer resource_metadata=@",
            "Bearer resource_metadata=@, realm=a",
            r#"Basic realm="x", Bearer resource_metadata="@", DPoP algs="ES256", resource_metadata="@""#,
            r#"Negotiate YWJj==, Bearer resource_metadata="@?a=b&c#d""#,
            r#"Negotiate YWJj=,Bearer realm="\"\\",resource_metadata="@""#,
            r#"Bearer realm="resource_metadata=\"http://in:1/mcp\", \\", resource_metadata="@""#,
            r#""stray" , ,= Bearer,resource_metadata="@""#,
        ] {
            let edited = public("http://in:1/mcp", "/solver").challenge(header.replace('@', THERE).as_bytes());
            assert_eq!(edited, header.replace('@', HERE), "{header}");
        }
    }

    #[test]
    fn b86_only_the_upstreams_own_address_is_replaced() {
        for (url, expected) in [
            ("HTTP://IN:1/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource"),
            ("http://in:1/.well-known/oauth-protected-resource/mcp/", "/.well-known/oauth-protected-resource/solver/"),
            ("http://in:1/.well-known/oauth-protected-resource/mcp2", "/.well-known/oauth-protected-resource/mcp2"),
            ("http://in:1/elsewhere?q", "/elsewhere?q"),
            ("http://in:1", ""),
            (r"http:\/\/in:1\/a", "/a"),
            ("http://in:1/a\\\"b", "/a\\\"b"),
        ] {
            let header = format!("Bearer resource_metadata=\"{url}\"");
            let edited = public("http://in:1/mcp", "/solver").challenge(header.as_bytes());
            assert_eq!(edited, format!("Bearer resource_metadata=\"https://gate.example{expected}\""), "{url}");
        }
        for header in [
            &b"Bearer"[..],
            b"",
            b"Bearer resource_metadata",
            b"Bearer resource_metadata=",
            b"Bearer resource_metadata=,",
            b"Bearer resource_metadata=\"",
            b"Bearer resource_metadata=\"http://in:1/mcp",
            b"Bearer resource_metadata=\"http://in:1/mcp\\",
            b"Bearer resource_metadata=\"http://in:2/mcp\"",
            b"Bearer resource_metadata=\"https://in:1/mcp\"",
            b"Bearer resource_metadata=\"http://in:1@evil/mcp\"",
            b"Bearer resource_metadata=\"http://evil@in:1/mcp\"",
            b"Bearer resource_metadata=\"http://in:1.evil/mcp\"",
            b"Bearer resource_metadata=\"/mcp\", realm=\"http://in:1/mcp\"",
            b"Bearer resource_metadata=\"http://in:1/\xff\"",
            b"Bearer x_resource_metadata=\"http://in:1/mcp\", resource_metadata_x=\"http://in:1/mcp\"",
        ] {
            let edited = public("http://in:1/mcp", "/solver").challenge(header);
            assert_eq!(edited, header, "{}", header.escape_ascii());
        }
    }

    #[test]
    fn b86_every_challenge_of_a_refusal_and_nothing_of_another_answer() {
        let there = HeaderValue::from_static("Bearer resource_metadata=\"http://in:1/a\"");
        for (status, is_edited) in [(401, true), (403, true), (400, false), (200, false)] {
            let mut headers = HeaderMap::new();
            for name in ["www-authenticate", "www-authenticate", "x-other"] {
                headers.append(name, there.clone());
            }
            public("http://in:1/mcp", "/mcp").challenges(StatusCode::from_u16(status).unwrap(), &mut headers);
            let here = "Bearer resource_metadata=\"https://gate.example/a\"";
            for value in headers.get_all(WWW_AUTHENTICATE) {
                assert_eq!(value, if is_edited { here } else { there.to_str().unwrap() }, "{status}");
            }
            assert_eq!(headers["x-other"], there);
        }
    }

    #[test]
    fn b86_paths_are_mapped_to_and_fro() {
        for (url, path, here, there) in [
            ("http://in/mcp", "/mcp", "/.well-known/oauth-protected-resource/mcp", "/mcp"),
            ("http://in/mcp", "/solver", "/.well-known/oauth-protected-resource/solver", "/mcp"),
            ("http://in/mcp/", "/solver", "/.well-known/oauth-protected-resource/solver", "/mcp"),
            ("http://in/", "/solver", "/.well-known/oauth-protected-resource/solver", ""),
            ("http://in/a/mcp", "/", "/.well-known/oauth-protected-resource", "/a/mcp"),
            ("http://in/mcp", "/solver", "/.well-known/oauth-protected-resource/solver/", "/mcp/"),
        ] {
            let there = format!("{METADATA}{there}");
            let public = public(url, path);
            assert_eq!(public.path_there(here), there, "{url} {path}");
            let header = format!("Bearer resource_metadata=\"http://in:80{there}\"");
            let expected = format!("Bearer resource_metadata=\"https://gate.example{here}\"");
            assert_eq!(public.challenge(header.as_bytes()), expected, "{url} {path}");
        }
        for path in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server/solver"] {
            assert_eq!(public("http://in/mcp", "/solver").path_there(path), path);
        }
        let bare = public("http://in/mcp", "/a,b")
            .challenge(b"B resource_metadata=http://in/.well-known/oauth-protected-resource/mcp");
        assert_eq!(bare, &b"B resource_metadata=\"https://gate.example/.well-known/oauth-protected-resource/a,b\""[..]);
    }

    #[test]
    fn b86_the_resource_is_what_clients_call() {
        for (path, text, expected) in [
            (
                "/solver",
                r#"{ "resource" : "http:\/\/in/mcp" , "x":1.0}"#,
                r#"{ "resource" : "https://gate.example/solver" , "x":1.0}"#,
            ),
            (
                "/",
                r#"{"x":"http://in/","resource":"http://in"}"#,
                r#"{"x":"http://in/","resource":"https://gate.example/"}"#,
            ),
            ("/a", r#"{"resource":"http://other/mcp"}"#, r#"{"resource":"http://other/mcp"}"#),
            ("/a", r#"{"resource":["http://in/mcp"]}"#, r#"{"resource":["http://in/mcp"]}"#),
            ("/a", r#"{"in":{"resource":"http://in/mcp"}}"#, r#"{"in":{"resource":"http://in/mcp"}}"#),
            ("/a", r#"["resource","http://in/mcp"]"#, r#"["resource","http://in/mcp"]"#),
            ("/a", r#"{"resource":"http://in/mcp""#, r#"{"resource":"http://in/mcp""#),
        ] {
            assert_eq!(public("http://in/mcp", path).document(&Bytes::from_static(text.as_bytes())), expected);
        }
    }

    #[test]
    fn resource_metadata_is_told_from_other_documents() {
        for (path, is_metadata) in [("", true), ("/mcp", true), ("/", true), ("2", false)] {
            assert_eq!(Public::is_metadata(&format!("{METADATA}{path}")), is_metadata, "{path}");
        }
        assert!(!Public::is_metadata("/.well-known/oauth-authorization-server"));
    }
}
