//! The heliograph binary: parse, start, wait, exit code. Nothing else is decided here.
//!
//! Exit codes: 0 all went as asked; 1 something did not, and standard error says what.

mod cli;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run(std::env::args_os().collect())
}
