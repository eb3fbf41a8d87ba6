//! Headers that repeat the body of a stateless request, so that what stands between can route by them (2026-07-28,
//! "Request Metadata" of Streamable HTTP): read against the body, and written for requests of our own.

use std::borrow::Cow;
use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::jsonrpc::entries;

use super::params::string;
use super::{header, method};

const SENTINEL: (&str, &str) = ("=?base64?", "?=");
/// Deeper annotations are not looked for.
const DEEPEST: usize = 32;
/// How much of a value an error text shows, in characters.
const SHOWN: usize = 60;

/// The header values of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Routing<'a> {
    /// `MCP-Protocol-Version`.
    pub version: Option<&'a [u8]>,
    /// `Mcp-Method`.
    pub method: Option<&'a [u8]>,
    /// `Mcp-Name`.
    pub name: Option<&'a [u8]>,
}

/// What the body of the same request says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Body<'a> {
    /// The version in `_meta`.
    pub version: Option<&'a str>,
    /// The method.
    pub method: &'a str,
    /// What it is about, see [`name_of`].
    pub name: Option<&'a str>,
}

/// Why the headers do not fit the body: `-32020`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// A header that is required is not there.
    #[error("Header mismatch: the {0} header is missing")]
    Missing(Cow<'static, str>),
    /// A value with characters that no header may have, or no Base64 between the marks of Base64.
    #[error("Header mismatch: the {0} header is malformed")]
    Malformed(Cow<'static, str>),
    /// Header and body differ.
    #[error("Header mismatch: {name} header value '{header}' does not match body value '{body}'")]
    Differs {
        /// Which header.
        name: Cow<'static, str>,
        /// Its value, cut.
        header: String,
        /// The value in the body, cut.
        body: String,
    },
}

/// Whether every required header is there and all of them [`agree`]. What the body itself lacks is not judged.
///
/// # Errors
/// If one is missing or does not agree.
pub fn check(headers: Routing<'_>, body: Body<'_>) -> Result<(), Mismatch> {
    let needs_name = NAMED.iter().any(|(named, _)| *named == body.method) && body.name.is_some();
    for (name, missing) in [
        (VERSION, headers.version.is_none()),
        (METHOD, headers.method.is_none()),
        (NAME, needs_name && headers.name.is_none()),
    ] {
        if missing {
            return Err(Mismatch::Missing(name.into()));
        }
    }
    agree(headers, body)
}

/// Whether the headers that are there say what the body says. `Mcp-Name` is compared, decoded, where a method has a
/// name or the body gives one: one without a counterpart does not agree.
///
/// # Errors
/// If one is malformed or differs.
pub fn agree(headers: Routing<'_>, body: Body<'_>) -> Result<(), Mismatch> {
    if let (Some(header), Some(version)) = (headers.version, body.version) {
        compare(VERSION, plain(header), version)?;
    }
    if let Some(header) = headers.method {
        compare(METHOD, plain(header), body.method)?;
    }
    match headers.name {
        Some(header) if body.name.is_some() || source(body.method).is_some() => {
            compare(NAME, decode(header), body.name.unwrap_or_default())
        }
        _ => Ok(()),
    }
}

/// Whether the headers repeat the arguments of a call as the tool's input schema asks (`x-mcp-header`); `header` tells
/// the value of a header by its name in lower case.
///
/// # Errors
/// If one is missing, malformed or differs.
pub fn check_arguments<'a>(
    input_schema: &str,
    arguments: &str,
    header: impl Fn(&str) -> Option<&'a [u8]>,
) -> Result<(), Mismatch> {
    for (name, expected) in param_headers(input_schema, arguments) {
        let Some(value) = header(&name) else { return Err(Mismatch::Missing(name.into())) };
        compare(name, decode(value), &decode(expected.as_bytes()).unwrap_or_default())?;
    }
    Ok(())
}

/// What a request is about: the tool, prompt, resource or task that it names.
#[must_use]
pub fn name_of<'a>(method: &str, params: Option<&'a str>) -> Option<Cow<'a, str>> {
    entries(params?).get(source(method)?).and_then(|raw| string(raw))
}

/// A header value that stands for `value`: itself if it is plain, else Base64 between marks.
#[must_use]
pub fn encode(value: &str) -> Cow<'_, str> {
    let plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~')) && value.trim_matches(' ') == value;
    if plain && marked(value.as_bytes()).is_none() {
        Cow::Borrowed(value)
    } else {
        Cow::Owned(format!("{}{}{}", SENTINEL.0, STANDARD.encode(value), SENTINEL.1))
    }
}

/// The `Mcp-Param-*` headers that a tool's input schema asks for (`x-mcp-header`) when it is called with `arguments`:
/// name in lower case, and value. Arguments that are absent, null, or no string, number or boolean have none; names
/// that are no header names, or taken, are left out.
#[must_use]
pub fn param_headers(input_schema: &str, arguments: &str) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    mirror(input_schema, arguments, DEEPEST, &mut headers);
    headers
}

const VERSION: &str = "MCP-Protocol-Version";
const METHOD: &str = "Mcp-Method";
const NAME: &str = "Mcp-Name";

/// The methods that must have a name, and the parameter that it repeats.
const NAMED: [(&str, &str); 3] =
    [(method::TOOLS_CALL, "name"), (method::PROMPTS_GET, "name"), (method::RESOURCES_READ, "uri")];

/// The parameter that the name of a method repeats. On `tasks/*` (SEP-2663) clients may leave it out.
fn source(method: &str) -> Option<&'static str> {
    let named = NAMED.iter().find(|(named, _)| *named == method).map(|(_, parameter)| *parameter);
    named.or_else(|| method.starts_with("tasks/").then_some("taskId"))
}

fn compare(name: impl Into<Cow<'static, str>>, header: Option<Cow<'_, str>>, body: &str) -> Result<(), Mismatch> {
    let name = name.into();
    let Some(header) = header else { return Err(Mismatch::Malformed(name)) };
    if header == body {
        return Ok(());
    }
    let cut = |text: &str| text.chars().take(SHOWN).collect();
    Err(Mismatch::Differs { name, header: cut(&header), body: cut(body) })
}

fn plain(value: &[u8]) -> Option<Cow<'_, str>> {
    let legal = value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
    std::str::from_utf8(value).ok().filter(|_| legal).map(Cow::Borrowed)
}

fn decode(value: &[u8]) -> Option<Cow<'_, str>> {
    match marked(value) {
        Some(inner) => String::from_utf8(STANDARD.decode(inner).ok()?).ok().map(Cow::Owned),
        None => plain(value),
    }
}

/// What stands between the marks, if both are there.
fn marked(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(SENTINEL.0.as_bytes())?.strip_suffix(SENTINEL.1.as_bytes())
}

fn mirror(schema: &str, arguments: &str, depth: usize, headers: &mut Vec<(String, String)>) {
    let schema = entries(schema);
    let (Some(properties), Some(depth)) = (schema.get("properties"), depth.checked_sub(1)) else { return };
    let given: HashMap<_, _> = entries(arguments);
    // In the order of the schema, so that the same call always has the same headers.
    for property in crate::jsonrpc::members(properties).unwrap_or_default() {
        let Some(argument) = given.get(&property.name) else { continue };
        if argument.starts_with('{') {
            mirror(property.value, argument, depth, headers);
        } else if let (Some(name), Some(value)) = (annotation(property.value), text_of(argument))
            && !headers.iter().any(|(taken, _)| *taken == name)
        {
            headers.push((name, encode(&value).into_owned()));
        }
    }
}

/// The header that a property asks for.
fn annotation(property: &str) -> Option<String> {
    let property = entries(property);
    let name = string(property.get("x-mcp-header")?)?;
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (!name.is_empty() && name.bytes().all(token))
        .then(|| format!("{}{}", header::PARAM_PREFIX, name.to_ascii_lowercase()))
}

/// A value as its header writes it.
fn text_of(value: &str) -> Option<Cow<'_, str>> {
    match value.as_bytes().first()? {
        b'"' => string(value),
        b't' | b'f' => Some(Cow::Borrowed(value)),
        b'-' | b'0'..=b'9' => Some(whole(value).map_or(Cow::Borrowed(value), Cow::Owned)),
        _ => None,
    }
}

/// A whole number that is spelt in another way (`42.0`, `4.2e1`) in plain digits, within what a double tells apart.
fn whole(number: &str) -> Option<String> {
    const SAFE: f64 = 9_007_199_254_740_991.0;
    let value: f64 = number.parse().ok().filter(|_| number.contains(['.', 'e', 'E']))?;
    // Adding zero makes the negative zero an ordinary one.
    (value.fract() == 0.0 && value.abs() <= SAFE).then(|| format!("{:.0}", value + 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers<'a>(version: &'a str, method: &'a str, name: &'a str) -> Routing<'a> {
        let there = |text: &'a str| (text != "-").then_some(text.as_bytes());
        Routing { version: there(version), method: there(method), name: there(name) }
    }

    #[test]
    fn b60_headers_agree_with_the_body() {
        const V: &str = "2026-07-28";
        let body = |method, name| Body { version: Some(V), method, name };
        let tool = body("tools/call", Some("echo"));
        for (sent, body, expected) in [
            (headers(V, "tools/call", "echo"), tool, ""),
            (headers(V, "tools/call", "=?base64?ZWNobw==?="), tool, ""),
            (headers(V, "tools/call", "=?base64?ZWNobw?="), tool, "Mcp-Name header is malformed"),
            (headers(V, "tools/call", "=?base64?/w==?="), tool, "Mcp-Name header is malformed"),
            (headers(V, "tools/call", "=?BASE64?ZWNobw==?="), tool, "does not match body value 'echo'"),
            (headers(V, "tools/call", "\u{e9}cho"), tool, "Mcp-Name header is malformed"),
            (headers(V, "tools/call", "Echo"), tool, "Mcp-Name header value 'Echo' does not match body value 'echo'"),
            (headers(V, "tools/call", "-"), tool, "the Mcp-Name header is missing"),
            (headers(V, "-", "echo"), tool, "the Mcp-Method header is missing"),
            (headers(V, "Tools/call", "echo"), tool, "Mcp-Method header value 'Tools/call'"),
            (headers(V, "=?base64?dG9vbHMvY2FsbA==?=", "echo"), tool, "Mcp-Method header value"),
            (headers("-", "tools/call", "echo"), tool, "the MCP-Protocol-Version header is missing"),
            (headers("2025-11-25", "tools/call", "echo"), tool, "MCP-Protocol-Version header value '2025-11-25'"),
            (headers(V, "tools/call", "echo"), body("tools/call", None), "does not match body value ''"),
            (headers(V, "tools/call", "-"), body("tools/call", None), ""),
            (headers(V, "prompts/get", "-"), body("prompts/get", Some("p")), "Mcp-Name header is missing"),
            (headers(V, "resources/read", "file:///a"), body("resources/read", Some("file:///a")), ""),
            (headers(V, "tools/list", "anything"), body("tools/list", None), ""),
            (headers(V, "tasks/get", "-"), body("tasks/get", Some("id")), ""),
            (headers(V, "tasks/get", "id"), body("tasks/get", Some("id")), ""),
            (headers(V, "tasks/get", "other"), body("tasks/get", Some("id")), "'other' does not match body value 'id'"),
            (headers(V, "tools/call", "echo"), Body { version: None, ..tool }, ""),
        ] {
            let told = check(sent, body).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(told.contains(expected) && told.is_empty() == expected.is_empty(), "{sent:?} {body:?}: {told}");
        }
        assert_eq!(agree(Routing::default(), tool), Ok(()));
        assert!(agree(headers("-", "-", "slow"), tool).is_err());
    }

    #[test]
    fn error_texts_stay_short() {
        let long = "x".repeat(10_000);
        let told =
            agree(headers("-", "-", &long), Body { version: None, method: "tools/call", name: Some(&long[1..]) });
        assert!(told.unwrap_err().to_string().len() < 240);
    }

    #[test]
    fn names_come_from_the_parameter_of_the_method() {
        let params = Some(r#"{"name":"t\u006fol","uri":"file:///a","taskId":"id","arguments":{"name":"no"}}"#);
        for (method, expected) in [
            ("tools/call", Some("tool")),
            ("prompts/get", Some("tool")),
            ("resources/read", Some("file:///a")),
            ("tasks/cancel", Some("id")),
            ("tools/list", None),
        ] {
            assert_eq!(name_of(method, params).as_deref(), expected, "{method}");
        }
        for params in [None, Some("null"), Some("[1]"), Some("{}"), Some(r#"{"name":7}"#), Some("{")] {
            assert_eq!(name_of("tools/call", params), None);
        }
    }

    #[test]
    fn values_that_are_not_plain_are_marked() {
        for (value, header) in [
            ("us-west1", "us-west1"),
            ("two words", "two words"),
            ("", ""),
            ("Hello, \u{4e16}\u{754c}", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("=?base64?literal", "=?base64?literal"),
        ] {
            assert_eq!(encode(value), header);
        }
    }

    #[test]
    fn b61_arguments_are_repeated_as_the_schema_asks() {
        let schema = r#"{"type":"object","properties":{
            "region":{"type":"string","x-mcp-header":"Region"}, "again":{"type":"string","x-mcp-header":"REGION"},
            "count":{"type":"integer","x-mcp-header":"Count"}, "dry":{"type":"boolean","x-mcp-header":"Dry-Run"},
            "bad":{"type":"string","x-mcp-header":"a b"}, "worse":{"type":"string","x-mcp-header":"a\r\nb"},
            "none":{"type":"string","x-mcp-header":""}, "odd":{"type":"string","x-mcp-header":7}, "query":{"type":"string"},
            "deep":{"type":"object","properties":{"tenant":{"type":"string","x-mcp-header":"Tenant"}}}}}"#;
        let all = r#"{"region":"d\u00fcsseldorf","again":"x","count":42.0,"dry":true,"bad":"1","worse":"2","none":"3",
            "odd":"4","query":"q","deep":{"tenant":"acme"}}"#;
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
        };
        for (arguments, expected) in [
            (
                all,
                pairs(&[
                    ("mcp-param-region", "=?base64?ZMO8c3NlbGRvcmY=?="),
                    ("mcp-param-count", "42"),
                    ("mcp-param-dry-run", "true"),
                    ("mcp-param-tenant", "acme"),
                ]),
            ),
            (r#"{"region":null,"count":[1],"dry":{}}"#, vec![]),
            (r#"{"count":-7,"deep":null}"#, pairs(&[("mcp-param-count", "-7")])),
            (r#"{"count":9007199254740993}"#, pairs(&[("mcp-param-count", "9007199254740993")])),
            (r#"{"count":4.2e1}"#, pairs(&[("mcp-param-count", "42")])),
            (r#"{"count":-0.0}"#, pairs(&[("mcp-param-count", "0")])),
            (r#"{"count":1e400}"#, pairs(&[("mcp-param-count", "1e400")])),
            ("null", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(param_headers(schema, arguments), expected, "{arguments}");
        }
        for schema in ["", "7", r#"{"properties":[1]}"#, r#"{"properties":{"region":true}}"#] {
            assert_eq!(param_headers(schema, all), vec![]);
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_read_back(value in ".{0,30}|=\\?base64\\?.{0,9}\\?=") {
            let header = encode(&value).into_owned();
            prop_assert!(header.bytes().all(|byte| matches!(byte, b' '..=b'~')));
            let decoded = decode(header.as_bytes()).map(Cow::into_owned);
            prop_assert_eq!(decoded, Some(value));
        }
    }
}
