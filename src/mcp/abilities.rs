//! What a client can be asked by its server.

use crate::jsonrpc::entries;

use super::method;

/// The client capabilities that let a server ask something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    elicitation: bool,
    sampling: bool,
    roots: bool,
}

impl Abilities {
    /// For a client of which nothing is known: a server asks only what `initialize` declared.
    pub const ALL: Self = Self { elicitation: true, sampling: true, roots: true };

    /// Reads the text of `capabilities`.
    #[must_use]
    pub fn read(capabilities: &str) -> Self {
        let declared = entries(capabilities);
        let has = |name: &str| declared.get(name).is_some_and(|value| *value != "null");
        Self { elicitation: has("elicitation"), sampling: has("sampling"), roots: has("roots") }
    }

    /// Capabilities that [`Abilities::read`] reads as these.
    #[must_use]
    pub fn capabilities(self) -> String {
        let declared = [("elicitation", self.elicitation), ("sampling", self.sampling), ("roots", self.roots)];
        let declared = declared.iter().filter(|(_, has)| *has).map(|(name, _)| format!("\"{name}\":{{}}"));
        format!("{{{}}}", declared.collect::<Vec<_>>().join(","))
    }

    /// Whether a question with this method can be put to the client.
    #[must_use]
    pub fn allow(self, question: &str) -> bool {
        match question {
            method::ELICITATION_CREATE => self.elicitation,
            method::SAMPLING_CREATE => self.sampling,
            method::ROOTS_LIST => self.roots,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_declared() {
        let some = Abilities::read(r#"{"elicitation":{},"sampling":null,"x":{"roots":{}}}"#);
        for (question, expected) in
            [("elicitation/create", true), ("sampling/createMessage", false), ("roots/list", false), ("x/y", false)]
        {
            assert_eq!(some.allow(question), expected, "{question}");
        }
        for abilities in [some, Abilities::ALL, Abilities::default()] {
            assert_eq!(Abilities::read(&abilities.capabilities()), abilities);
        }
        assert!(Abilities::ALL.allow("roots/list") && !Abilities::ALL.allow("x/y"));
    }
}
