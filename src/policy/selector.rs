//! Which calls a rule is for: globs over tool names and, optionally, a condition on the call's arguments.
//!
//! A condition that cannot be decided (an argument is missing, a type does not fit) does not hold, so a call is
//! never lost to a rule: it falls to the next one.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use cel::{Context, Env, Program};
use globset::{Glob, GlobSet, GlobSetBuilder};

use super::{arguments, names};

/// The standard CEL functions and macros, built once: it is the same for every condition.
static STANDARD: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// Globs over tool names, and a condition in CEL over `args` and `tool`.
#[derive(Debug)]
pub struct Selector {
    globs: GlobSet,
    every_tool: bool,
    condition: Option<Program>,
    written: String,
}

/// As it was written: `run_*, mesh when args.n > 1000`.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

/// Why a selector could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectorError {
    /// The glob at this place in the list is not one.
    Glob {
        /// Place in the list, from 0.
        index: usize,
        /// What is wrong with it.
        message: String,
    },
    /// The condition is not CEL, or names something else than `args` and `tool`.
    Condition {
        /// Line within the condition, from 1.
        line: usize,
        /// Column within that line, from 1.
        column: usize,
        /// What is wrong with it.
        message: String,
    },
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Glob { message, .. } => f.write_str(message),
            Self::Condition { line: 1, column, message } => write!(f, "{message} (at character {column})"),
            Self::Condition { line, column, message } => write!(f, "{message} (at line {line}, character {column})"),
        }
    }
}

impl std::error::Error for SelectorError {}

impl Selector {
    /// A selector for the tools that any of `globs` matches and, if given, the calls for which `condition` holds.
    ///
    /// `*` matches any run of characters, `/` and `.` among them. A selector without globs matches nothing.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, at once.
    pub fn new(globs: &[impl AsRef<str>], condition: Option<&str>) -> Result<Self, Vec<SelectorError>> {
        let mut errors = Vec::new();
        let set = glob_set(globs, &mut errors);
        let mut written = globs.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
        if let Some(source) = condition {
            written = format!("{written} when {}", source.trim());
        }
        let condition = condition.and_then(|source| match compile(source) {
            Ok(program) => Some(program),
            Err(found) => {
                errors.extend(found);
                None
            }
        });
        if !errors.is_empty() {
            return Err(errors);
        }
        let every_tool = globs.iter().any(|glob| matches!(glob.as_ref(), "*" | "**"));
        Ok(Self { globs: set, every_tool, condition, written })
    }

    /// Whether the name alone fits.
    pub fn names(&self, tool: &str) -> bool {
        self.every_tool || self.globs.is_match(tool)
    }

    /// Whether the arguments matter.
    pub fn is_conditional(&self) -> bool {
        self.condition.is_some()
    }

    /// Whether it takes every call, so that nothing is left for later rules.
    pub fn is_total(&self) -> bool {
        self.every_tool && self.condition.is_none()
    }

    /// Whether the condition holds; without one it does.
    pub(super) fn holds(&self, call: &Subject) -> bool {
        let Some(program) = &self.condition else { return true };
        let Some(context) = &call.context else { return false };
        matches!(program.execute(context), Ok(cel::Value::Bool(true)))
    }
}

/// What conditions are evaluated on: one call, its arguments parsed.
pub(super) struct Subject {
    context: Option<Context<'static, 'static>>,
}

impl Subject {
    /// The call of `tool` with these arguments (JSON text); no condition holds if they are not an object.
    pub(super) fn new(tool: &str, arguments: Option<&str>) -> Self {
        let parsed = arguments.map_or_else(|| Some(HashMap::new()), arguments::parse);
        let context = parsed.map(|args| {
            let mut context = Context::with_env(Arc::clone(&STANDARD));
            context.add_variable_from_value("args", args);
            context.add_variable_from_value("tool", tool);
            context
        });
        Self { context }
    }
}

fn glob_set(globs: &[impl AsRef<str>], errors: &mut Vec<SelectorError>) -> GlobSet {
    let mut builder = GlobSetBuilder::new();
    let mut last = 0;
    for (index, glob) in globs.iter().enumerate() {
        last = index;
        match Glob::new(glob.as_ref()) {
            Ok(glob) => drop(builder.add(glob)),
            Err(error) => errors.push(SelectorError::Glob { index, message: error.kind().to_string() }),
        }
    }
    builder.build().unwrap_or_else(|error| {
        errors.push(SelectorError::Glob { index: last, message: error.kind().to_string() });
        GlobSet::empty()
    })
}

fn compile(source: &str) -> Result<Program, Vec<SelectorError>> {
    // Errors that have no place say 0 or less.
    let place = |at: isize| usize::try_from(at).unwrap_or(1).max(1);
    let program = STANDARD.compile(source).map_err(|found| {
        let error = |error: &cel::ParseError| SelectorError::Condition {
            line: place(error.pos.0),
            column: place(error.pos.1),
            message: error.msg.clone(),
        };
        found.errors.iter().map(error).collect::<Vec<_>>()
    })?;
    let strangers = names::unknown(program.expression());
    if strangers.is_empty() {
        return Ok(program);
    }
    let error = |(id, name): (u64, &str)| {
        let start = program.source_info().offset_for(id).map_or(0, |(start, _)| start);
        let (line, column) = line_and_column(source, start.try_into().unwrap_or(0));
        let message = format!("unknown name `{name}`: a condition knows `args` and `tool`");
        SelectorError::Condition { line, column, message }
    };
    Err(strangers.into_iter().map(error).collect())
}

/// Where the character with this number (from 0) stands, counted from 1.
fn line_and_column(source: &str, character: usize) -> (usize, usize) {
    source
        .chars()
        .take(character)
        .fold((1, 1), |(line, column), c| if c == '\n' { (line + 1, 1) } else { (line, column + 1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(globs: &[&str], condition: Option<&str>) -> Vec<SelectorError> {
        Selector::new(globs, condition).unwrap_err()
    }

    #[test]
    fn every_mistake_is_reported_with_its_place() {
        let found = errors(&["ok", "[a", "{b", "c"], Some("args.n >"));
        let places: Vec<_> = found
            .iter()
            .map(|error| match error {
                SelectorError::Glob { index, .. } => (*index, 0),
                SelectorError::Condition { line, column, .. } => (*line, *column),
            })
            .collect();
        assert_eq!(places[..2], [(1, 0), (2, 0)], "{found:?}");
        assert!(places[2..].iter().all(|place| *place == (1, 9)), "{found:?}");
    }

    #[test]
    fn unknown_names_are_refused() {
        for (condition, at) in [("arg.n > 1", (1, 1)), ("args.n > 1 &&\n  Tool == 'a'", (2, 3))] {
            let found = errors(&["*"], Some(condition));
            let [SelectorError::Condition { line, column, message }] = &found[..] else { panic!("{found:?}") };
            assert_eq!((*line, *column), at, "{message}");
            assert!(message.contains("`args`"), "{message}");
        }
        let known = [
            "args.l.exists(x, x > args.n)",
            "args.l.all(x, args.m.exists(y, y == x))",
            "type(args.n) == int",
            "{'a': tool}.a in [tool]",
            "args.l.map(x, x * 2).filter(x, x > 1).size() > 0",
        ];
        for condition in known {
            assert!(Selector::new(&["*"], Some(condition)).is_ok(), "{condition}");
        }
        assert_eq!(errors(&["*"], Some("args.l.exists(x, x > y)")).len(), 1);
    }

    #[test]
    fn only_a_star_without_condition_takes_everything() {
        let total = |glob: &str, condition| Selector::new(&["a", glob], condition).unwrap().is_total();
        assert!(total("*", None));
        assert!(total("**", None));
        assert!(!total("*", Some("true")));
        assert!(!total("?*", None));
    }

    #[test]
    fn it_reads_as_it_was_written() {
        assert_eq!(Selector::new(&["a", "b*"], None).unwrap().to_string(), "a, b*");
        assert_eq!(Selector::new(&["a"], Some("args.n > 1")).unwrap().to_string(), "a when args.n > 1");
    }

    #[test]
    fn a_selector_without_globs_matches_nothing() {
        assert!(!Selector::new(&[] as &[&str], None).unwrap().names("a"));
    }
}
