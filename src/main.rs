//! The `taskgate` binary: parse, then let the command line's room do the rest.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    taskgate::cli::main()
}
