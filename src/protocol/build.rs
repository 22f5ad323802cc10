//! Turns the schema tables into Rust: messages, the enums over all APIs, and the fillers that
//! the tests use. Owns where the generated files go; the tables alone say what is in them.

#[path = "generator/emit.rs"]
mod emit;
#[path = "generator/emit_api.rs"]
mod emit_api;
#[path = "generator/emit_fill.rs"]
mod emit_fill;
#[path = "generator/schema.rs"]
mod schema;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=schemas");
    println!("cargo::rerun-if-changed=generator");
    let mut files: Vec<PathBuf> = fs::read_dir("schemas")?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "schema"));
    files.sort();
    let mut messages = Vec::new();
    for file in files {
        messages.extend(schema::parse(&file.to_string_lossy(), &fs::read_to_string(&file)?)?);
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    write(&out, "messages.rs", &emit::messages(&messages))?;
    write(&out, "api.rs", &emit_api::api(&messages))?;
    write(&out, "fill.rs", &emit_fill::fill(&messages))?;
    Ok(())
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), Box<dyn Error>> {
    fs::write(folder.join(name), text)?;
    Ok(())
}
