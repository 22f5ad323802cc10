//! Fillers for the tests: for every struct, how to fill what a version can say with seeded
//! values. The crate's tests include the result; the library never does.

use crate::emit::{condition, field_name, line, snake, structs};
use crate::schema::{Field, Message, Type, Versions};

/// All fillers, and the list of all messages, as Rust source.
pub fn fill(messages: &[Message]) -> String {
    let mut out = String::new();
    for message in messages {
        let module = snake(&message.name);
        for each in structs(message) {
            line(
                &mut out,
                &format!(
                    "impl Fill for protocol::messages::{module}::{0} {{
                        fn fill(random: &mut Random, version: i16) -> Self {{
                        let mut this = Self::default();",
                    each.name
                ),
            );
            for field in each.fields {
                emit_field(&mut out, &module, field, each.versions);
            }
            line(&mut out, "this } }");
        }
    }
    line(&mut out, "/// Shows every message to the visitor.");
    line(&mut out, "pub fn visit_all(visitor: &mut impl Visitor) {");
    for message in messages {
        line(&mut out, &format!("visitor.visit::<protocol::messages::{}>();", message.name));
    }
    line(&mut out, "}");
    out
}

fn emit_field(out: &mut String, module: &str, field: &Field, within: Versions) {
    let mut value = value(module, &field.kind);
    let inside = field.versions.intersect(within);
    if !field.nullable.is_empty() {
        let nullable = condition(field.nullable, inside).unwrap_or_else(|| "true".to_owned());
        value =
            format!("if ({nullable}) && random.below(4) == 0 {{ None }} else {{ Some({value}) }}");
    }
    let mut set = format!("this.{} = {value};", field_name(field));
    if field.tag.is_some() {
        set = format!("if random.below(2) == 0 {{ {set} }}");
    }
    match condition(field.versions, within) {
        None => line(out, &set),
        Some(condition) => line(out, &format!("if {condition} {{ {set} }}")),
    }
}

fn value(module: &str, kind: &Type) -> String {
    match kind {
        Type::Bool => "random.below(2) == 1".to_owned(),
        Type::Int8 => "random.i8()".to_owned(),
        Type::Int16 => "random.i16()".to_owned(),
        Type::Uint16 => "random.u16()".to_owned(),
        Type::Int32 => "random.i32()".to_owned(),
        Type::Int64 => "random.i64()".to_owned(),
        Type::Float64 => "f64::from(random.i32())".to_owned(),
        Type::Uuid => "random.uuid()".to_owned(),
        Type::String => "random.string()".to_owned(),
        Type::Bytes | Type::Records => "random.bytes()".to_owned(),
        Type::Struct(name) => {
            format!("protocol::messages::{module}::{name}::fill(random, version)")
        }
        Type::Array(element) => {
            format!("random.list(|random| {})", value(module, element))
        }
    }
}
