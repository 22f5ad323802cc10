//! Messages as Rust: one module a message with its structs, their defaults, `write` and
//! `read`. Owns the shape of the generated code; the primitives it calls are in the crate's
//! `reader` and `writer`.

use crate::schema::{Field, Kind, Message, Type, Versions};
use std::fmt::Write;

/// One struct of a message, with the versions in which it can occur.
pub struct Struct<'a> {
    pub name: &'a str,
    pub versions: Versions,
    pub fields: &'a [Field],
}

/// A camel-case name as snake case.
pub fn snake(name: &str) -> String {
    let mut out = String::new();
    let mut previous_lower = false;
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            if previous_lower {
                out.push('_');
            }
            out.push(letter.to_ascii_lowercase());
        } else {
            out.push(letter);
        }
        previous_lower = !letter.is_ascii_uppercase();
    }
    out
}

/// A field's name in Rust.
pub fn field_name(field: &Field) -> String {
    let name = snake(&field.name);
    match name.as_str() {
        "type" | "match" | "move" | "ref" | "use" | "where" => format!("r#{name}"),
        _ => name,
    }
}

/// The structs of a message, the message itself first.
pub fn structs(message: &Message) -> Vec<Struct<'_>> {
    let mut all =
        vec![Struct { name: &message.name, versions: message.versions, fields: &message.fields }];
    collect(&message.fields, message.versions, &mut all);
    for common in &message.structs {
        let versions = common.versions.intersect(message.versions);
        all.push(Struct { name: &common.name, versions, fields: &common.fields });
        collect(&common.fields, versions, &mut all);
    }
    all
}

fn collect<'a>(fields: &'a [Field], within: Versions, all: &mut Vec<Struct<'a>>) {
    for field in fields.iter().filter(|field| !field.fields.is_empty()) {
        let versions = field.versions.intersect(within);
        let name = field.kind.struct_name().expect("only a struct has fields");
        all.push(Struct { name, versions, fields: &field.fields });
        collect(&field.fields, versions, all);
    }
}

/// The Rust condition for `version` being in `inner`, where it is known to be in `outer`.
/// `None` = always.
pub fn condition(inner: Versions, outer: Versions) -> Option<String> {
    let inner = inner.intersect(outer);
    if inner.is_empty() {
        return Some("false".to_owned());
    }
    match (inner.first > outer.first, inner.last < outer.last) {
        (false, false) => None,
        (true, false) => Some(format!("version >= {}", inner.first)),
        (false, true) => Some(format!("version <= {}", inner.last)),
        (true, true) => Some(format!("({}..={}).contains(&version)", inner.first, inner.last)),
    }
}

/// The Rust type of a field, without its nullability.
fn bare_type(kind: &Type) -> String {
    match kind {
        Type::Bool => "bool".to_owned(),
        Type::Int8 => "i8".to_owned(),
        Type::Int16 => "i16".to_owned(),
        Type::Uint16 => "u16".to_owned(),
        Type::Int32 => "i32".to_owned(),
        Type::Int64 => "i64".to_owned(),
        Type::Float64 => "f64".to_owned(),
        Type::Uuid => "Uuid".to_owned(),
        Type::String => "String".to_owned(),
        Type::Bytes | Type::Records => "Bytes".to_owned(),
        Type::Struct(name) => name.clone(),
        Type::Array(element) => format!("Vec<{}>", bare_type(element)),
    }
}

fn rust_type(field: &Field) -> String {
    if field.nullable.is_empty() {
        bare_type(&field.kind)
    } else {
        format!("Option<{}>", bare_type(&field.kind))
    }
}

/// The Rust expression of a field's default.
pub fn default_value(field: &Field) -> String {
    let text = field.default.as_deref();
    let nullable = !field.nullable.is_empty();
    if nullable && (text == Some("null") || field.kind == Type::Records) {
        return "None".to_owned();
    }
    let value = match (&field.kind, text) {
        (Type::Bool, text) => text.unwrap_or("false").to_owned(),
        (Type::Float64, text) => format!("{}f64", text.unwrap_or("0")),
        (Type::Int8 | Type::Int16 | Type::Uint16 | Type::Int32 | Type::Int64, text) => {
            text.unwrap_or("0").to_owned()
        }
        (Type::String, Some(text)) => format!("String::from({text:?})"),
        (Type::String, None) => "String::new()".to_owned(),
        (Type::Uuid, _) => "Uuid::nil()".to_owned(),
        (Type::Bytes | Type::Records, _) => "Bytes::new()".to_owned(),
        (Type::Array(_), _) => "Vec::new()".to_owned(),
        (Type::Struct(name), _) => format!("{name}::default()"),
    };
    if nullable { format!("Some({value})") } else { value }
}

/// The Rust condition for a field differing from its default.
fn is_set(field: &Field) -> String {
    let name = field_name(field);
    let default = default_value(field);
    match (default.as_str(), &field.kind) {
        ("None", _) => format!("self.{name}.is_some()"),
        ("false", _) => format!("self.{name}"),
        ("Vec::new()" | "String::new()" | "Bytes::new()", _) => format!("!self.{name}.is_empty()"),
        _ => format!("self.{name} != {default}"),
    }
}

/// All messages as Rust source.
pub fn messages(messages: &[Message]) -> String {
    let mut out = String::new();
    for message in messages {
        let module = snake(&message.name);
        line(&mut out, &format!("/// {}: versions {}.", message.name, message.versions));
        line(&mut out, &format!("pub mod {module} {{"));
        line(&mut out, "use super::*;");
        for each in structs(message) {
            emit_struct(&mut out, message, &each);
        }
        emit_message(&mut out, message);
        line(&mut out, "}");
        line(&mut out, &format!("pub use {module}::{};", message.name));
    }
    out
}

pub fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("a String takes every write");
}

fn emit_struct(out: &mut String, message: &Message, each: &Struct<'_>) {
    line(out, &format!("/// In versions {} of {}.", each.versions, message.name));
    line(out, "#[derive(Debug, Clone, PartialEq)]");
    line(out, &format!("pub struct {} {{", each.name));
    for field in each.fields {
        line(out, &format!("/// {}.", describe(field)));
        line(out, &format!("pub {}: {},", field_name(field), rust_type(field)));
    }
    line(out, "}");
    line(out, &format!("impl Default for {0} {{ fn default() -> Self {{ {0} {{", each.name));
    for field in each.fields {
        line(out, &format!("{}: {},", field_name(field), default_value(field)));
    }
    line(out, "} } }");
    line(out, &format!("impl Struct for {} {{", each.name));
    emit_write(out, message, each);
    emit_read(out, message, each);
    line(out, "}");
}

fn describe(field: &Field) -> String {
    let mut text = format!("`{}`: {}, versions {}", field.name, field.kind, field.versions);
    if !field.nullable.is_empty() {
        text.push_str(&format!(", null in {}", field.nullable));
    }
    if let Some(tag) = field.tag {
        text.push_str(&format!(", tag {tag}"));
    }
    if let Some(default) = &field.default {
        text.push_str(&format!(", default {default}"));
    }
    if field.ignorable {
        text.push_str(", ignorable");
    }
    text.replace('[', "\\[").replace(']', "\\]")
}

fn emit_message(out: &mut String, message: &Message) {
    let flexible = if message.flexible.is_empty() {
        "i16::MAX".to_owned()
    } else {
        message.flexible.first.to_string()
    };
    let Versions { first, last } = message.versions;
    line(out, &format!("impl Message for {} {{", message.name));
    line(out, &format!("const NAME: &'static str = {:?};", message.name));
    line(out, &format!("const VERSIONS: RangeInclusive<i16> = {first}..={last};"));
    line(out, &format!("const FLEXIBLE_FROM: i16 = {flexible};"));
    line(
        out,
        "fn encode(&self, out: &mut BytesMut, version: i16) -> Result<(), Error> {
            check_version::<Self>(version)?;
            Struct::write(self, out, version)
        }
        fn decode(input: &mut Reader, version: i16) -> Result<Self, Error> {
            check_version::<Self>(version)?;
            Struct::read(input, version)
        }",
    );
    line(out, "}");
    if message.kind == Kind::Request || message.kind == Kind::Response {
        let key = message.key.expect("a request or response has a key");
        line(out, &format!("impl {} {{", message.name));
        line(out, "/// The API key.");
        line(out, &format!("pub const KEY: i16 = {key};"));
        line(out, "}");
    }
}

fn flexible_let(out: &mut String, message: &Message, each: &Struct<'_>) {
    let expression = match condition(message.flexible, each.versions) {
        None => "true".to_owned(),
        Some(condition) => condition,
    };
    line(out, &format!("let flexible = {expression};"));
}

fn tagged<'a>(each: &Struct<'a>) -> Vec<&'a Field> {
    let mut fields: Vec<&Field> = each.fields.iter().filter(|field| field.tag.is_some()).collect();
    fields.sort_by_key(|field| field.tag);
    fields
}

fn emit_write(out: &mut String, message: &Message, each: &Struct<'_>) {
    line(out, "fn write(&self, out: &mut BytesMut, version: i16) -> Result<(), Error> {");
    flexible_let(out, message, each);
    for field in each.fields {
        let inside = condition(field.versions, each.versions);
        if let Some(inside) = &inside
            && !field.ignorable
        {
            let set = is_set(field);
            let refuse = format!(
                "if !({inside}) && {set} {{ return Err(not_in_version({:?}, {:?}, version)); }}",
                each.name, field.name
            );
            line(out, &refuse);
        }
        if field.tag.is_none() {
            let write = write_field(field, each.versions, "out");
            line(out, &guarded(inside.as_deref(), &write));
        }
    }
    let tagged = tagged(each);
    line(out, "if flexible {");
    if tagged.is_empty() {
        line(out, "out.put_u8(0);");
    } else {
        line(out, "let mut tags = TaggedFields::new();");
        for field in tagged {
            let tag = field.tag.expect("filtered by it");
            let write = write_field(field, each.versions, "out");
            let put = format!(
                "if {} {{ tags.put({tag}, |out| {{ {write} Ok(()) }})?; }}",
                is_set(field)
            );
            line(out, &guarded(condition(field.versions, each.versions).as_deref(), &put));
        }
        line(out, "tags.finish(out);");
    }
    line(out, "}\nOk(())\n}");
}

fn guarded(condition: Option<&str>, body: &str) -> String {
    match condition {
        None => body.to_owned(),
        Some(condition) => format!("if {condition} {{ {body} }}"),
    }
}

/// How a type says null.
#[derive(PartialEq)]
enum Form {
    String,
    Bytes,
    Array,
    Struct,
}

fn form(kind: &Type) -> Form {
    if kind == &Type::String {
        Form::String
    } else if matches!(kind, Type::Array(_)) {
        Form::Array
    } else if matches!(kind, Type::Struct(_)) {
        Form::Struct
    } else {
        Form::Bytes
    }
}

/// Statements that write one field in a version where it exists.
fn write_field(field: &Field, within: Versions, out: &str) -> String {
    let name = field_name(field);
    let place = format!("self.{name}");
    if field.nullable.is_empty() {
        return write_value(&field.kind, &place, out);
    }
    let inside = field.versions.intersect(within);
    let present = write_value(&field.kind, "value", out);
    let some = if form(&field.kind) == Form::Struct {
        format!("{out}.put_i8(1); {present}")
    } else {
        present.clone()
    };
    let null = match form(&field.kind) {
        Form::Struct => format!("{out}.put_i8(-1);"),
        Form::String => format!("put_null_string({out}, flexible);"),
        Form::Array => format!("put_null_array({out}, flexible);"),
        Form::Bytes => format!("put_null_bytes({out}, flexible);"),
    };
    let nullable =
        format!("match &{place} {{ Some(value) => {{ {some} }} None => {{ {null} }} }}");
    match condition(field.nullable, inside) {
        None => nullable,
        Some(condition) => format!(
            "if {condition} {{ {nullable} }} else {{ let value = \
             {place}.as_ref().ok_or_else(|| null_not_allowed({:?}, version))?; {present} }}",
            field.name
        ),
    }
}

fn write_value(kind: &Type, place: &str, out: &str) -> String {
    let copied =
        if place == "value" || place == "item" { format!("*{place}") } else { place.to_owned() };
    match kind {
        Type::Bool => format!("{out}.put_u8(u8::from({copied}));"),
        Type::Int8 => format!("{out}.put_i8({copied});"),
        Type::Int16 => format!("{out}.put_i16({copied});"),
        Type::Uint16 => format!("{out}.put_u16({copied});"),
        Type::Int32 => format!("{out}.put_i32({copied});"),
        Type::Int64 => format!("{out}.put_i64({copied});"),
        Type::Float64 => format!("{out}.put_f64({copied});"),
        Type::Uuid => format!("{out}.put_slice({place}.as_bytes());"),
        Type::String => format!("put_string({out}, flexible, {place}.as_str())?;"),
        Type::Bytes | Type::Records => format!("put_bytes({out}, flexible, {place}.as_ref())?;"),
        Type::Struct(_) => format!("{place}.write({out}, version)?;"),
        Type::Array(element) => {
            let write = write_value(element, "item", out);
            format!(
                "put_array_len({out}, flexible, {place}.len())?; \
                 for item in {place}.iter() {{ {write} }}"
            )
        }
    }
}

fn emit_read(out: &mut String, message: &Message, each: &Struct<'_>) {
    line(out, "fn read(input: &mut Reader, version: i16) -> Result<Self, Error> {");
    flexible_let(out, message, each);
    line(out, "let mut this = Self::default();");
    for field in each.fields.iter().filter(|field| field.tag.is_none()) {
        let read = format!("this.{} = {};", field_name(field), read_field(field, each.versions));
        line(out, &guarded(condition(field.versions, each.versions).as_deref(), &read));
    }
    let tagged = tagged(each);
    line(out, "if flexible {");
    if tagged.is_empty() {
        line(out, "input.skip_tagged_fields()?;");
    } else {
        line(out, "let mut tags = input.tagged_fields()?;");
        line(out, "while let Some(tag) = tags.next(input)? { match tag {");
        for field in tagged {
            let tag = field.tag.expect("filtered by it");
            let guard = match condition(field.versions, each.versions) {
                None => String::new(),
                Some(condition) => format!(" if {condition}"),
            };
            let read = read_field(field, each.versions);
            line(out, &format!("{tag}{guard} => this.{} = {read},", field_name(field)));
        }
        line(out, "_ => tags.skip(input),\n} }");
    }
    line(out, "}\nOk(this)\n}");
}

/// The expression that reads one field in a version where it exists.
fn read_field(field: &Field, within: Versions) -> String {
    let present = read_value(&field.kind);
    if field.nullable.is_empty() {
        return present;
    }
    let nullable = match form(&field.kind) {
        Form::String => "input.nullable_string(flexible)?".to_owned(),
        Form::Array => {
            let Type::Array(element) = &field.kind else { unreachable!("by its form") };
            format!("input.nullable_array(flexible, |input| Ok({}))?", read_value(element))
        }
        Form::Struct => format!("if input.i8()? < 0 {{ None }} else {{ Some({present}) }}"),
        Form::Bytes => "input.nullable_bytes(flexible)?".to_owned(),
    };
    match condition(field.nullable, field.versions.intersect(within)) {
        None => nullable,
        Some(condition) => {
            format!("if {condition} {{ {nullable} }} else {{ Some({present}) }}")
        }
    }
}

fn read_value(kind: &Type) -> String {
    match kind {
        Type::Bool => "input.bool()?".to_owned(),
        Type::Int8 => "input.i8()?".to_owned(),
        Type::Int16 => "input.i16()?".to_owned(),
        Type::Uint16 => "input.u16()?".to_owned(),
        Type::Int32 => "input.i32()?".to_owned(),
        Type::Int64 => "input.i64()?".to_owned(),
        Type::Float64 => "input.f64()?".to_owned(),
        Type::Uuid => "input.uuid()?".to_owned(),
        Type::String => "input.string(flexible)?".to_owned(),
        Type::Bytes | Type::Records => "input.bytes(flexible)?".to_owned(),
        Type::Struct(name) => format!("{name}::read(input, version)?"),
        Type::Array(element) => {
            format!("input.array(flexible, |input| Ok({}))?", read_value(element))
        }
    }
}
