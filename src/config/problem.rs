//! What is wrong with a configuration, in words for the person who wrote it.
//!
//! Values are named here only where they cannot be secrets.

use std::fmt;
use std::ops::Range;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, when there is one.
    pub file: Option<String>,
    /// Line in the file, from 1; none for a flag or the lack of something.
    pub line: Option<usize>,
    /// Path of the key (`upstream[0].rule[1].mode`), or the flag.
    pub key: String,
    /// What is wrong, what was expected, what to do about it.
    pub wrong: Wrong,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{file}:{line}: ")?,
            (Some(file), None) => write!(f, "{file}: ")?,
            (None, Some(line)) => write!(f, "line {line}: ")?,
            (None, None) => {}
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.wrong.what)?;
        if let Some(expected) = &self.wrong.expected {
            write!(f, "\n  expected: {expected}")?;
        }
        if let Some(hint) = &self.wrong.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

/// Everything that is wrong, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            let end = if at + 1 < self.0.len() { "\n" } else { "" };
            write!(f, "{problem}{end}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// What is wrong with one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// What is the matter.
    pub what: String,
    /// What would be right.
    pub expected: Option<String>,
    /// What to do.
    pub hint: Option<String>,
    /// Where in the text, when it is not the whole value.
    pub(super) at: Option<Range<usize>>,
}

impl Wrong {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), expected: None, hint: None, at: None }
    }

    pub(super) fn expected(self, expected: impl Into<String>) -> Self {
        Self { expected: Some(expected.into()), ..self }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    pub(super) fn at(self, at: Range<usize>) -> Self {
        Self { at: Some(at), ..self }
    }
}

impl From<Wrong> for Vec<Wrong> {
    fn from(wrong: Wrong) -> Self {
        vec![wrong]
    }
}

/// The candidate that was probably meant, if one is near.
pub(super) fn nearest<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let far = written.len().min(60) / 3 + 1;
    let measured = candidates.into_iter().map(|candidate| (distance(written, candidate), candidate));
    measured.filter(|(distance, _)| *distance <= far).min_by_key(|(distance, _)| *distance).map(|(_, near)| near)
}

/// How many letters must be added, taken away or changed to come from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (line, a) in from.chars().take(60).enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, b) in to.chars().enumerate() {
            let change = diagonal + usize::from(a != b);
            diagonal = row[column + 1];
            row[column + 1] = change.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.chars().count()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found() {
        let keys = ["threshold", "ttl", "max_ttl", "mode"];
        for (written, meant) in [
            ("treshold", Some("threshold")),
            ("tll", Some("ttl")),
            ("maxttl", Some("max_ttl")),
            ("modus", Some("mode")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, keys), meant, "{written}");
        }
    }

    #[test]
    fn a_problem_is_a_block() {
        let problem = |file: Option<&str>, line, wrong| Problem {
            file: file.map(str::to_owned),
            line,
            key: "tasks.ttl".to_owned(),
            wrong,
        };
        let full = Wrong::new("is a number").expected("a duration").hint("write \"1h\"");
        let all = Problems(vec![
            problem(Some("a.toml"), Some(3), full),
            problem(None, Some(4), Wrong::new("is odd")),
            problem(None, None, Wrong::new("is odd")),
        ]);
        let expected = "a.toml:3: tasks.ttl: is a number\n  expected: a duration\n  hint: write \"1h\"\n\
                        line 4: tasks.ttl: is odd\ntasks.ttl: is odd";
        assert_eq!(all.to_string(), expected);
    }
}
