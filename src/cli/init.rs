//! `taskgate init`: a configuration file to start from.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::source::DEFAULT_FILE;

/// The commented sample.
const SAMPLE: &str = include_str!("../../config/taskgate.toml");

/// Where to write.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file to write
    #[arg(value_name = "FILE", default_value = DEFAULT_FILE)]
    file: PathBuf,
    /// Write over a file that is there
    #[arg(long)]
    force: bool,
}

/// Writes the sample; status 1 if that fails or would destroy a file.
pub(super) fn run(args: Args) -> ExitCode {
    let Args { file, force } = args;
    let name = file.display();
    let mut options = OpenOptions::new();
    if force {
        options.write(true).create(true).truncate(true)
    } else {
        options.write(true).create_new(true)
    };
    match write(&options, &file) {
        Ok(()) => {
            println!("wrote {name}: set the upstream's url, then `taskgate check {name}`");
            ExitCode::SUCCESS
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            eprintln!("{name} is there already; --force writes over it");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{name} cannot be written: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(options: &OpenOptions, file: &Path) -> io::Result<()> {
    options.open(file)?.write_all(SAMPLE.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_only_written_over_by_force() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gate.toml");
        let written = |force| {
            let code = run(Args { file: file.clone(), force });
            (code == ExitCode::SUCCESS, std::fs::read_to_string(&file).unwrap() == SAMPLE)
        };
        assert_eq!(written(false), (true, true));
        std::fs::write(&file, "mine").unwrap();
        assert_eq!(written(false), (false, false));
        assert_eq!(written(true), (true, true));
    }
}
