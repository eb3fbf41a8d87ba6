//! Where a configuration comes from, for every subcommand that needs one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::config::{Config, Overrides, Problems};
use crate::store::Kind;

use super::EX_CONFIG;

/// The file that is read when none is named.
pub(super) const DEFAULT_FILE: &str = "taskgate.toml";

/// A configuration file and the flags that go before it.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Source {
    /// Configuration file; without it and without --upstream, taskgate.toml in this directory
    #[arg(long, short, value_name = "FILE", env = "TASKGATE_CONFIG", value_parser = maybe_empty())]
    pub config: Option<PathBuf>,
    /// Flags that go before the file.
    #[command(flatten)]
    pub overrides: Overrides,
}

impl Source {
    /// The configuration, with everything that is wrong printed if there is something.
    ///
    /// # Errors
    ///
    /// The exit status, when there are problems.
    pub fn read(&self) -> Result<Config, ExitCode> {
        read(self.config.as_deref(), &self.overrides).map_err(|problems| report(&problems))
    }

    /// Where `run` would keep tasks with the same arguments. Without an upstream and a file, where it would with any
    /// `--upstream`.
    ///
    /// # Errors
    ///
    /// The exit status, when there are problems.
    pub(super) fn store(&self) -> Result<Kind, ExitCode> {
        // What a flag says needs no file.
        let needed = |file: &&Path| {
            !given(self.overrides.store.as_deref()) && (*file != Path::new(DEFAULT_FILE) || file.exists())
        };
        let read = file(self.config.as_deref(), &self.overrides).filter(needed);
        Config::store(read, &self.overrides).map_err(|problems| report(&problems))
    }
}

/// The configuration in the file of these arguments, or in the arguments alone.
pub(super) fn read(named: Option<&Path>, overrides: &Overrides) -> Result<Config, Problems> {
    match file(named, overrides) {
        Some(file) => Config::load(file, overrides),
        None => Config::from_flags(overrides),
    }
}

/// The file that is named; else none if an upstream is given, else the default file.
fn file<'a>(named: Option<&'a Path>, overrides: &Overrides) -> Option<&'a Path> {
    let named = named.filter(|file| !file.as_os_str().is_empty());
    named.or_else(|| (!given(overrides.upstream.as_deref())).then(|| Path::new(DEFAULT_FILE)))
}

/// Takes the empty path too, which the parser of paths refuses: an empty variable counts as none.
pub(super) fn maybe_empty() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

fn given(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

/// Prints problems and counts them.
pub(super) fn report(problems: &Problems) -> ExitCode {
    let count = problems.0.len();
    eprintln!("{problems}\n{count} {}", if count == 1 { "problem" } else { "problems" });
    ExitCode::from(EX_CONFIG)
}
