//! Where a configuration comes from, for every subcommand that needs one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::config::{Config, Overrides, Problems};

use super::EX_CONFIG;

/// The file that is read when none is named.
pub(super) const DEFAULT_FILE: &str = "taskgate.toml";

/// A configuration file and the flags that go before it.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Source {
    /// Configuration file; without it and without --upstream, taskgate.toml in this directory
    #[arg(long, short, value_name = "FILE", env = "TASKGATE_CONFIG")]
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
}

/// The file that is named; else none if an upstream is given, else the default file.
pub(super) fn read(file: Option<&Path>, overrides: &Overrides) -> Result<Config, Problems> {
    let given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    match file.filter(|file| !file.as_os_str().is_empty()) {
        Some(file) => Config::load(file, overrides),
        None if given(&overrides.upstream) => Config::from_flags(overrides),
        None => Config::load(DEFAULT_FILE, overrides),
    }
}

/// Prints problems and counts them.
pub(super) fn report(problems: &Problems) -> ExitCode {
    let count = problems.0.len();
    eprintln!("{problems}\n{count} {}", if count == 1 { "problem" } else { "problems" });
    ExitCode::from(EX_CONFIG)
}
