//! A TOML text, read key by key: whatever is wrong is noted with its place, and reading goes on.
//!
//! The text is parsed to a table that knows where each value stands, and the sections ask it for what they know.
//! serde would be shorter, but it ends at the first error, and a person with ten mistakes should not need ten runs.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::overrides::Flag;
use super::problem::{Problem, Problems, Wrong, nearest};
use super::value::{Read, Value, kind};

/// The text and what was found in it.
pub(super) struct Document<'a> {
    text: &'a str,
    file: Option<&'a str>,
    problems: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<String>>,
    /// Paths of the keys whose values are not those that were meant.
    unsound: RefCell<Vec<String>>,
    broken: Cell<bool>,
}

impl<'a> Document<'a> {
    pub(super) fn new(text: &'a str, file: Option<&'a str>) -> Self {
        let (problems, warnings, unsound) = (RefCell::default(), RefCell::default(), RefCell::default());
        Self { text, file, problems, warnings, unsound, broken: Cell::new(false) }
    }

    /// The table of the whole text, as far as it is TOML.
    pub(super) fn table(&self) -> DeTable<'a> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        self.broken.set(!errors.is_empty());
        for error in errors {
            self.note(String::new(), error.span(), Wrong::new(format!("not TOML: {}", error.message())));
        }
        table.into_inner()
    }

    /// Warnings and problems in the order of the text. What was found on a line that is not TOML is left out: it
    /// follows from that.
    pub(super) fn finish(self) -> (Vec<String>, Option<Problems>) {
        let mut problems = self.problems.into_inner();
        let broken: Vec<_> = problems.iter().filter(|problem| problem.key.is_empty()).map(|found| found.line).collect();
        problems.retain(|problem| problem.key.is_empty() || problem.line.is_none() || !broken.contains(&problem.line));
        problems.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        (self.warnings.into_inner(), (!problems.is_empty()).then_some(Problems(problems)))
    }

    fn line(&self, at: usize) -> usize {
        self.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
    }

    fn note(&self, key: String, at: Option<Range<usize>>, wrong: Wrong) {
        let line = wrong.at.clone().or(at).map(|at| self.line(at.start));
        let problem = Problem { file: self.file.map(str::to_owned), line, key, wrong };
        self.problems.borrow_mut().push(problem);
    }

    fn note_flag(&self, name: &str, wrong: Wrong) {
        let wrong = Wrong { at: None, ..wrong };
        self.problems.borrow_mut().push(Problem { file: None, line: None, key: name.to_owned(), wrong });
    }
}

/// One table of the text, or what stands for it when it is not there.
pub(super) struct Section<'a> {
    document: &'a Document<'a>,
    table: Option<&'a DeTable<'a>>,
    path: String,
    at: Option<Range<usize>>,
    known: RefCell<Vec<&'static str>>,
    refused: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    pub(super) fn root(document: &'a Document<'a>, table: &'a DeTable<'a>) -> Self {
        let (known, refused) = (RefCell::default(), RefCell::default());
        Self { document, table: Some(table), path: String::new(), at: None, known, refused }
    }

    /// The table under this key; an empty one if there is none.
    pub(super) fn section(&self, key: &'static str) -> Self {
        let value = self.get(key);
        let table = value.and_then(|value| value.get_ref().as_table());
        if let (Some(value), None) = (value, table) {
            let wrong = Wrong::new(format!("is {}", kind(value))).expected("a table");
            self.problem(key, wrong.hint(format!("write [{}] on a line of its own", self.path_of(key))));
        }
        self.child(self.path_of(key), table, value.map(Spanned::span))
    }

    /// The tables of the array under this key, in order.
    pub(super) fn tables(&self, key: &'static str) -> Vec<Self> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let path = self.path_of(key);
        let name: String = path.split('[').map(|part| part.split_once(']').map_or(part, |(_, rest)| rest)).collect();
        let expected = || Wrong::new(format!("is {}", kind(value))).expected("an array of tables");
        let Some(array) = value.get_ref().as_array() else {
            self.problem(key, expected().hint(format!("write [[{name}]] instead of [{name}]")));
            return Vec::new();
        };
        let element = |(at, value): (usize, &'a Value<'a>)| {
            let path = format!("{}[{at}]", self.path_of(key));
            let table = value.get_ref().as_table();
            if table.is_none() {
                let wrong = Wrong::new(format!("is {}", kind(value))).expected("a table");
                self.document.unsound.borrow_mut().push(self.path_of(key));
                self.document.note(path.clone(), Some(value.span()), wrong);
            }
            table.map(|table| self.child(path, Some(table), Some(value.span())))
        };
        array.iter().enumerate().filter_map(element).collect()
    }

    /// What stands for a table that is not written at all.
    pub(super) fn absent(&self, key: &str) -> Self {
        self.child(self.path_of(key), None, None)
    }

    fn child(&self, path: String, table: Option<&'a DeTable<'a>>, at: Option<Range<usize>>) -> Self {
        let (known, refused) = (RefCell::default(), RefCell::default());
        Self { document: self.document, table, path, at, known, refused }
    }

    /// The value under this key, read; none if it is absent or wrong.
    pub(super) fn read<T>(&self, key: &'static str, reader: impl FnOnce(&Value<'_>) -> Read<T>) -> Option<T> {
        let value = self.get(key)?;
        reader(value).map_err(|wrongs| wrongs.into_iter().for_each(|wrong| self.problem(key, wrong))).ok()
    }

    /// The same with a default.
    pub(super) fn read_or<T>(&self, key: &'static str, default: T, reader: impl FnOnce(&Value<'_>) -> Read<T>) -> T {
        self.read(key, reader).unwrap_or(default)
    }

    /// The value that was given by a flag (or its environment variable), else the one under this key.
    pub(super) fn read_flag<T>(
        &self,
        key: &'static str,
        flag: Flag<'_>,
        reader: impl Fn(&Value<'_>) -> Read<T>,
    ) -> Option<T> {
        let written = self.read(key, &reader);
        let Some(text) = flag.value else { return written };
        let value = Spanned::new(0..0, DeValue::String(text.into()));
        let given = reader(&value);
        if given.is_err() {
            self.document.unsound.borrow_mut().push(self.path_of(key));
        }
        given.map_err(|wrongs| wrongs.into_iter().for_each(|wrong| self.flag_problem(flag, wrong))).ok()
    }

    /// The entries of the table under this key, whose names are the user's.
    pub(super) fn entries(&self, key: &'static str) -> Vec<(&'a str, &'a Value<'a>)> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let Some(table) = value.get_ref().as_table() else {
            self.problem(key, Wrong::new(format!("is {}", kind(value))).expected("a table"));
            return Vec::new();
        };
        table.iter().map(|(name, value)| (name.get_ref().as_ref(), value)).collect()
    }

    /// Whether the key is written.
    pub(super) fn has(&self, key: &'static str) -> bool {
        self.get(key).is_some()
    }

    /// Whether what is known of the key is what was meant: the text is TOML, and nothing is wrong with the key so far.
    /// Only such keys may be compared with others, or be missed.
    pub(super) fn sound(&self, key: &str) -> bool {
        self.sound_at(&self.path_of(key))
    }

    /// The same of a key anywhere in the text.
    pub(super) fn sound_at(&self, path: &str) -> bool {
        !self.document.broken.get() && !self.document.unsound.borrow().iter().any(|unsound| unsound == path)
    }

    fn get(&self, key: &'static str) -> Option<&'a Value<'a>> {
        if !self.known.borrow().contains(&key) {
            self.known.borrow_mut().push(key);
        }
        self.table?.get(key)
    }

    /// Notes what is wrong with the value of a key, or, if that is not written, with the lack of it.
    pub(super) fn problem(&self, key: &'static str, wrong: Wrong) {
        let at = self.get(key).map(Spanned::span).or_else(|| self.at.clone());
        self.document.unsound.borrow_mut().push(self.path_of(key));
        self.document.note(self.path_of(key), at, wrong);
    }

    /// Notes what is wrong with a flag.
    pub(super) fn flag_problem(&self, flag: Flag<'_>, wrong: Wrong) {
        self.document.note_flag(flag.name, wrong);
    }

    /// Notes what is allowed but probably not meant.
    pub(super) fn warn(&self, key: &'static str, text: impl AsRef<str>) {
        let at = self.get(key).map(Spanned::span).or_else(|| self.at.clone());
        let place = match (self.document.file, at) {
            (Some(file), Some(at)) => format!("{file}:{}: ", self.document.line(at.start)),
            (None, Some(at)) => format!("line {}: ", self.document.line(at.start)),
            (_, None) => String::new(),
        };
        let warning = format!("{place}{}: {}", self.path_of(key), text.as_ref());
        self.document.warnings.borrow_mut().push(warning);
    }

    /// Refuses keys, if they are written, for one reason.
    pub(super) fn refuse(&self, keys: &[&'static str], wrong: &Wrong) {
        self.refused.borrow_mut().extend(keys);
        for key in keys.iter().copied().filter(|key| self.has(key)) {
            self.problem(key, wrong.clone());
        }
    }

    /// Refuses keys that belong to a later version.
    pub(super) fn not_yet(&self, keys: &[&'static str]) {
        self.refuse(keys, &Wrong::new("is not in this version").hint("take it out"));
    }

    /// Notes every key that nobody has asked for; but not where a broken heading may have put keys into this table.
    pub(super) fn done(self) {
        if self.document.broken.get() {
            return;
        }
        let (known, refused) = (self.known.borrow(), self.refused.borrow());
        let usable: Vec<&str> = known.iter().copied().filter(|key| !refused.contains(key)).collect();
        for (key, value) in self.table.into_iter().flatten() {
            let name = key.get_ref().as_ref();
            if known.contains(&name) {
                continue;
            }
            let wrong = match nearest(name, usable.iter().copied()) {
                Some(near) => Wrong::new("unknown key").hint(format!("did you mean `{near}`?")),
                None => Wrong::new("unknown key").expected(format!("one of {}", usable.join(", "))),
            };
            let at = if key.span().is_empty() { value.span() } else { key.span() };
            self.document.note(self.path_of(name), Some(at), wrong);
        }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}
