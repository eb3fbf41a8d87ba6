//! Builds a JSON object member by member, so that parts which are JSON text already go in as they are.

use super::quote;

/// An object in the making.
#[derive(Clone, Debug)]
pub struct Object {
    text: String,
}

impl Default for Object {
    fn default() -> Self {
        Self { text: "{".into() }
    }
}

impl Object {
    /// An object without members.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a member whose value is JSON text.
    #[must_use]
    pub fn raw(mut self, name: &str, value: &str) -> Self {
        if self.text.len() > 1 {
            self.text.push(',');
        }
        self.text.push_str(&quote(name));
        self.text.push(':');
        self.text.push_str(value);
        self
    }

    /// Adds a string.
    #[must_use]
    pub fn string(self, name: &str, value: &str) -> Self {
        self.raw(name, &quote(value))
    }

    /// Adds a whole number.
    #[must_use]
    pub fn number(self, name: &str, value: u64) -> Self {
        self.raw(name, &value.to_string())
    }

    /// Adds a string if there is one.
    #[must_use]
    pub fn maybe_string(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.string(name, value),
            None => self,
        }
    }

    /// Its text so far, without the closing brace.
    #[must_use]
    pub fn open(self) -> String {
        self.text
    }

    /// Its text.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.text.push('}');
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_in_order() {
        assert_eq!(Object::new().finish(), "{}");
        let object = Object::new().string("a", "x\"y").number("b", 7).raw("c", "[1.0]").maybe_string("d", None);
        assert_eq!(object.finish(), r#"{"a":"x\"y","b":7,"c":[1.0]}"#);
    }
}
