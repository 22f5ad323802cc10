//! The heliograph binary: parse, start, wait, exit code.

fn main() {}
