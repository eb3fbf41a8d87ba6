//! One look at a message: which kind it is, its id and method, and where its parts lie in the text.
//!
//! The text is read once, borrowed, and stays as it is. Repeated members of the envelope are refused: two readers
//! that pick different ones would see two different messages.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{ErrorObject, INVALID_REQUEST, Id, PARSE_ERROR, offset_in};

/// A body that was read: one message, or a batch that is not looked into.
#[derive(Debug)]
pub enum Message<P> {
    /// One message, and its parameters.
    Single(Envelope, Option<P>),
    /// A JSON array.
    Batch,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Has a method and an id.
    Request,
    /// Has a method and no id.
    Notification,
    /// Has a result or an error.
    Response,
}

/// One message: its text and where the parts are.
#[derive(Clone, Debug)]
pub struct Envelope {
    text: Bytes,
    kind: Kind,
    id: Option<Id>,
    id_at: Option<Range<usize>>,
    method: String,
    params: Option<Range<usize>>,
    result: Option<Range<usize>>,
    error: Option<Range<usize>>,
}

/// Why a text is no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Not JSON in UTF-8.
    #[error("the body is not valid JSON: {0}")]
    Syntax(String),
    /// JSON, but not a JSON-RPC message.
    #[error("the body is not a JSON-RPC message: {0}")]
    Shape(String),
}

impl ReadError {
    /// The JSON-RPC code that says so.
    #[must_use]
    pub fn code(&self) -> i64 {
        match self {
            Self::Syntax(_) => PARSE_ERROR,
            Self::Shape(_) => INVALID_REQUEST,
        }
    }
}

impl<'a, P: Deserialize<'a>> Message<P> {
    /// Reads a body.
    ///
    /// # Errors
    /// If it is not JSON in UTF-8, or neither an array nor an object that is a message.
    pub fn read(text: &'a Bytes) -> Result<Self, ReadError> {
        match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'[') => Ok(Self::Batch),
            _ => Envelope::read_with(text).map(|(message, params)| Self::Single(message, params)),
        }
    }
}

impl Envelope {
    /// Reads one message.
    ///
    /// # Errors
    /// If it is not JSON in UTF-8, or not an object that is a message.
    pub fn read(text: Bytes) -> Result<Self, ReadError> {
        let (source, peek) = Peek::<&RawValue>::of(&text)?;
        let params = peek.params.map(|raw| offset_in(source, raw.get()));
        let parts = Parts::of(source, &peek);
        parts.envelope(text, params)
    }

    /// Reads one message, and its parameters in the same pass as `P`.
    ///
    /// # Errors
    /// If it is not JSON in UTF-8, or not an object that is a message.
    pub fn read_with<'a, P: Deserialize<'a>>(text: &'a Bytes) -> Result<(Self, Option<P>), ReadError> {
        let (source, peek) = Peek::<P>::of(text)?;
        let parts = Parts::of(source, &peek);
        Ok((parts.envelope(text.clone(), None)?, peek.params))
    }

    /// The whole text.
    #[must_use]
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The id, unless it is absent or `null`.
    #[must_use]
    pub fn id(&self) -> Option<&Id> {
        self.id.as_ref()
    }

    /// The method; empty for a response.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The text of `params`.
    #[must_use]
    pub fn params(&self) -> Option<&str> {
        self.params_at().map(|at| self.slice(at))
    }

    /// Where `params` lies in the text. Looked for again if they were read in one pass.
    #[must_use]
    pub fn params_at(&self) -> Option<Range<usize>> {
        self.params.clone().or_else(|| {
            let members = super::members(self.slice(0..self.text.len()))?;
            members.into_iter().find(|member| member.name == "params").map(|member| member.value_at)
        })
    }

    /// The text of `result`, sharing the message's memory.
    #[must_use]
    pub fn result(&self) -> Option<Bytes> {
        self.result.clone().map(|at| self.text.slice(at))
    }

    /// Where `result` lies in the text.
    #[must_use]
    pub fn result_at(&self) -> Option<Range<usize>> {
        self.result.clone()
    }

    /// `error`, where it is one as JSON-RPC has it.
    #[must_use]
    pub fn error_object(&self) -> Option<ErrorObject> {
        serde_json::from_str(self.error()?).ok()
    }

    /// The text of `error`.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.error.clone().map(|at| self.slice(at))
    }

    /// The same message with another id; untouched if it has that id already.
    #[must_use]
    pub fn with_id(&self, id: &Id) -> Bytes {
        match &self.id_at {
            Some(at) if &self.text[at.clone()] == id.raw().as_bytes() => self.text.clone(),
            Some(at) => super::splice(&self.text, vec![super::Edit::new(at.clone(), id.raw())]),
            None => super::insert_first(&self.text, 0, "id", id.raw()),
        }
    }

    fn slice(&self, at: Range<usize>) -> &str {
        std::str::from_utf8(&self.text[at]).expect("the text was checked, and parts end at its characters")
    }
}

fn method_name(raw: &str) -> Result<String, ReadError> {
    serde_json::from_str(raw).map_err(|_| ReadError::Shape("the method is a string".into()))
}

/// The members of an envelope, borrowed. Written by hand: a derived one would take a JSON array for the object.
struct Peek<'a, P> {
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<P>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

impl<'a, P: Deserialize<'a>> Peek<'a, P> {
    fn of(text: &'a Bytes) -> Result<(&'a str, Self), ReadError> {
        let source = std::str::from_utf8(text).map_err(|error| ReadError::Syntax(error.to_string()))?;
        let peek = serde_json::from_str(source).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => ReadError::Shape(error.to_string()),
            _ => ReadError::Syntax(error.to_string()),
        })?;
        Ok((source, peek))
    }
}

/// Where the members are, without the text.
struct Parts {
    id: Option<Range<usize>>,
    method: Result<Option<String>, ReadError>,
    result: Option<Range<usize>>,
    error: Option<Range<usize>>,
}

impl Parts {
    fn of<P>(source: &str, peek: &Peek<'_, P>) -> Self {
        let place = |raw: Option<&RawValue>| raw.map(|raw| offset_in(source, raw.get()));
        Self {
            id: place(peek.id),
            method: peek.method.map(|raw| method_name(raw.get())).transpose(),
            result: place(peek.result),
            error: place(peek.error),
        }
    }

    fn envelope(self, text: Bytes, params: Option<Range<usize>>) -> Result<Envelope, ReadError> {
        let Self { id: id_at, method, result, error } = self;
        let method = method?;
        let kind = match (&method, &id_at, result.as_ref().or(error.as_ref())) {
            (Some(_), Some(_), _) => Kind::Request,
            (Some(_), None, _) => Kind::Notification,
            (None, _, Some(_)) => Kind::Response,
            (None, _, None) => return Err(ReadError::Shape("it has no method, result or error".into())),
        };
        let id = id_at.clone().and_then(|at| Id::from_raw(&text[at]));
        if kind == Kind::Request && id.is_none() {
            return Err(ReadError::Shape("the id of a request is a string or a number".into()));
        }
        Ok(Envelope { kind, id, id_at, method: method.unwrap_or_default(), params, result, error, text })
    }
}

enum Key {
    Id,
    Method,
    Params,
    Result,
    Error,
    Version,
    Other,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Key;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member name")
            }
            fn visit_str<E>(self, name: &str) -> Result<Key, E> {
                Ok(match name {
                    "id" => Key::Id,
                    "method" => Key::Method,
                    "params" => Key::Params,
                    "result" => Key::Result,
                    "error" => Key::Error,
                    "jsonrpc" => Key::Version,
                    _ => Key::Other,
                })
            }
        }
        deserializer.deserialize_str(Name)
    }
}

impl<'de, P: Deserialize<'de>> Deserialize<'de> for Peek<'de, P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<P>(PhantomData<P>);
        impl<'de, P: Deserialize<'de>> Visitor<'de> for Object<P> {
            type Value = Peek<'de, P>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Peek<'de, P>, A::Error> {
                let mut peek = Peek { id: None, method: None, params: None, result: None, error: None };
                let mut version_seen = false;
                while let Some(key) = map.next_key::<Key>()? {
                    let (slot, name) = match key {
                        Key::Id => (&mut peek.id, "id"),
                        Key::Method => (&mut peek.method, "method"),
                        Key::Params if peek.params.is_some() => {
                            return Err(A::Error::duplicate_field("params"));
                        }
                        Key::Params => {
                            peek.params = Some(map.next_value()?);
                            continue;
                        }
                        Key::Result => (&mut peek.result, "result"),
                        Key::Error => (&mut peek.error, "error"),
                        Key::Version if version_seen => return Err(A::Error::duplicate_field("jsonrpc")),
                        Key::Version | Key::Other => {
                            version_seen |= matches!(key, Key::Version);
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    if slot.is_some() {
                        return Err(A::Error::custom(format_args!("duplicate member `{name}`")));
                    }
                    *slot = Some(map.next_value()?);
                }
                Ok(peek)
            }
        }
        deserializer.deserialize_map(Object(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Envelope, ReadError> {
        Envelope::read(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn tells_the_kinds_apart() {
        for (text, kind) in [
            (r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#, Kind::Request),
            (r#" {"method":"a/b","params":{"x":1}} "#, Kind::Notification),
            (r#"{"id":"7","result":{}}"#, Kind::Response),
            (r#"{"id":null,"error":{"code":1,"message":""}}"#, Kind::Response),
        ] {
            assert_eq!(read(text).unwrap().kind(), kind, "{text}");
        }
    }

    #[test]
    fn refuses_what_two_readers_could_read_differently() {
        for (text, code) in [
            (r#"{"id":1,"method":"a","method":"b"}"#, INVALID_REQUEST),
            (r#"{"id":1,"method":"a","meth\u006fd":"b"}"#, INVALID_REQUEST),
            (r#"{"id":1,"id":2,"method":"a"}"#, INVALID_REQUEST),
            (r#"{"id":null,"method":"a"}"#, INVALID_REQUEST),
            (r#"{"id":{},"method":"a"}"#, INVALID_REQUEST),
            (r#"{"id":1,"method":7}"#, INVALID_REQUEST),
            (r#"["tools/call",1]"#, INVALID_REQUEST),
            ("7", INVALID_REQUEST),
            ("{}", INVALID_REQUEST),
            ("{", PARSE_ERROR),
            ("", PARSE_ERROR),
            (r#"{"id":1,"method":"a"} x"#, PARSE_ERROR),
        ] {
            assert_eq!(read(text).unwrap_err().code(), code, "{text}");
        }
        assert_eq!(Envelope::read(Bytes::from_static(b"{\"id\":1,\"x\":\"\xff\"}")).unwrap_err().code(), PARSE_ERROR);
    }

    #[test]
    fn changes_the_id_and_nothing_else() {
        let id = Id::from_raw(b"9007199254740993").unwrap();
        let message = read(r#"{"result": {"n":1e400, "id":5} ,"id" : "a" }"#).unwrap();
        assert_eq!(message.with_id(&id), r#"{"result": {"n":1e400, "id":5} ,"id" : 9007199254740993 }"#);
        let same = Id::from_raw(b"\"a\"").unwrap();
        assert_eq!(message.with_id(&same).as_ptr(), message.text().as_ptr());
        assert_eq!(read(r#"{"result":{}}"#).unwrap().with_id(&same), r#"{"id":"a","result":{}}"#);
        assert_eq!(read(r#"{"id":null,"result":1}"#).unwrap().with_id(&same), r#"{"id":"a","result":1}"#);
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            ".{0,12}".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::hash_map("id|method|params|result|error|.{0,6}", inner, 0..6)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn never_panics_and_never_changes_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(message) = Envelope::read(Bytes::from(bytes.clone())) {
                prop_assert_eq!(message.text().as_ref(), bytes.as_slice());
            }
        }

        #[test]
        fn finds_the_parts_of_any_object(value in json()) {
            let text = value.to_string();
            if let Ok(message) = read(&text) {
                prop_assert_eq!(message.text(), &text);
                let part = |raw: &str| serde_json::from_str::<serde_json::Value>(raw).unwrap();
                prop_assert_eq!(message.params().map(part), value.get("params").cloned());
                let result = message.result().map(|raw| part(std::str::from_utf8(&raw).unwrap()));
                prop_assert_eq!(result, value.get("result").cloned());
                let id = Id::from_string("new");
                let edited = message.with_id(&id);
                let again: serde_json::Value = serde_json::from_slice(&edited).unwrap();
                prop_assert_eq!(again.get("id"), Some(&serde_json::Value::from("new")));
                prop_assert_eq!(again.get("result"), value.get("result"));
            }
        }
    }
}
