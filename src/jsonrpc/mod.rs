//! JSON-RPC 2.0 messages as sealed text: looked into, edited by byte range, never re-serialised.
//!
//! Numbers keep their digits and unknown members pass, because nothing here builds a tree of values.

mod batch;
mod canonical;
mod envelope;
mod error;
mod id;
mod object;
mod rope;
mod splice;

pub use batch::split;
pub use canonical::canonical;
pub use envelope::{Envelope, Kind, Message, ReadError};
pub use error::{ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR};
pub use id::{Id, OURS};
pub use object::Object;
pub use rope::Rope;
pub use splice::{Edit, Member, entries, insert_first, members, offset_in, remove, remove_where, splice};

use bytes::Bytes;

/// A response that carries `result`, a complete JSON text.
#[must_use]
pub fn result_response(id: &Id, result: &str) -> Bytes {
    Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.raw()))
}

/// The same with a result in pieces.
#[must_use]
pub fn rope_response(id: &Id, result: Rope) -> Rope {
    Rope::from(format!(r#"{{"jsonrpc":"2.0","id":{},"result":"#, id.raw())).with_all(result).with("}")
}

/// A response that carries an error; `None` stands for the `null` id of a request that could not be read.
#[must_use]
pub fn error_response(id: Option<&Id>, error: &ErrorObject) -> Bytes {
    let id = id.map_or("null", Id::raw);
    let error = serde_json::to_string(error).expect("an error object is plain JSON");
    Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#))
}

/// A notification with complete `params`.
#[must_use]
pub fn notification(method: &str, params: &str) -> Bytes {
    Bytes::from(format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#))
}

/// A request with complete `params`.
#[must_use]
pub fn request(id: &Id, method: &str, params: &str) -> Bytes {
    Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{},"method":"{method}","params":{params}}}"#, id.raw()))
}

/// `text` as a JSON string, quotes included.
#[must_use]
pub fn quote(text: &str) -> String {
    serde_json::to_string(text).expect("a string is JSON")
}
