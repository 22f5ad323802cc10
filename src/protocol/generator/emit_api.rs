//! The enums over all APIs as Rust: `ApiKey`, `Request` and `Response`. Owns their generated
//! part; what needs a thought (headers, the shared key 94) is written by hand in `api.rs`.

use crate::emit::line;
use crate::schema::{Kind, Message, Versions};

struct Api<'a> {
    name: &'a str,
    key: i16,
    request: &'a Message,
    response: &'a Message,
}

fn apis(messages: &[Message]) -> Vec<Api<'_>> {
    let mut apis: Vec<Api<'_>> = messages
        .iter()
        .filter(|message| message.kind == Kind::Request)
        .map(|request| {
            let response = messages
                .iter()
                .find(|other| other.kind == Kind::Response && other.key == request.key)
                .expect("every request has a response in its table");
            Api {
                name: request.name.trim_end_matches("Request"),
                key: request.key.expect("a request has a key"),
                request,
                response,
            }
        })
        .collect();
    apis.sort_by_key(|api| api.key);
    apis
}

/// All enums as Rust source.
pub fn api(messages: &[Message]) -> String {
    let apis = apis(messages);
    let mut out = String::new();
    emit_keys(&mut out, &apis);
    emit_enum(&mut out, &apis, "Request");
    emit_enum(&mut out, &apis, "Response");
    out
}

fn arms(out: &mut String, apis: &[Api<'_>], arm: impl Fn(&Api<'_>) -> String) {
    for api in apis {
        line(out, &arm(api));
    }
}

fn emit_keys(out: &mut String, apis: &[Api<'_>]) {
    line(out, "/// Every API that is served here or asked of another cluster, by Kafka's name.");
    line(out, "#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]");
    line(out, "pub enum ApiKey {");
    arms(out, apis, |api| format!("/// Key {0}.\n{1} = {0},", api.key, api.name));
    line(out, "}\nimpl ApiKey {");
    line(out, "/// All of them, by number.");
    line(out, "pub const ALL: &'static [ApiKey] = &[");
    arms(out, apis, |api| format!("ApiKey::{},", api.name));
    line(out, "];\n/// The key with this number, if it is one of ours.");
    line(out, "pub fn from_i16(key: i16) -> Option<ApiKey> { match key {");
    arms(out, apis, |api| format!("{} => Some(ApiKey::{}),", api.key, api.name));
    line(out, "_ => None,\n} }");
    line(out, "/// The number on the wire.");
    line(out, "pub const fn as_i16(self) -> i16 { match self {");
    arms(out, apis, |api| format!("ApiKey::{} => {},", api.name, api.key));
    line(out, "} }\n/// Kafka's name of the API.");
    line(out, "pub const fn name(self) -> &'static str { match self {");
    arms(out, apis, |api| format!("ApiKey::{0} => {0:?},", api.name));
    line(out, "} }\n/// The versions served: the codec's, less those Kafka calls unstable.");
    line(out, "pub const fn versions(self) -> RangeInclusive<i16> { match self {");
    arms(out, apis, |api| {
        let Versions { first, last } = api.request.versions;
        let last = api.request.unstable.map_or(last, |unstable| last.min(unstable - 1));
        format!("ApiKey::{} => {first}..={last},", api.name)
    });
    line(out, "} }\n/// The first version whose request is flexible.");
    line(out, "pub(crate) const fn flexible_from(self) -> i16 { match self {");
    arms(out, apis, |api| {
        let name = &api.request.name;
        format!("ApiKey::{} => <messages::{name} as Message>::FLEXIBLE_FROM,", api.name)
    });
    line(out, "} }\n}");
}

fn emit_enum(out: &mut String, apis: &[Api<'_>], kind: &str) {
    let message = |api: &Api<'_>| match kind {
        "Request" => api.request.name.clone(),
        _ => api.response.name.clone(),
    };
    line(out, &format!("/// A {} of any API.", kind.to_lowercase()));
    line(out, &format!("#[derive(Debug, Clone, PartialEq)]\npub enum {kind} {{"));
    arms(out, apis, |api| {
        format!("/// Key {}.\n{}(messages::{}),", api.key, api.name, message(api))
    });
    line(out, &format!("}}\nimpl {kind} {{"));
    line(out, "/// The API it belongs to.");
    line(out, "pub fn api_key(&self) -> ApiKey { match self {");
    arms(out, apis, |api| format!("{kind}::{0}(_) => ApiKey::{0},", api.name));
    line(out, "} }\n/// Appends the body in this version.\n///\n/// # Errors\n///");
    line(out, "/// A version out of range, or a field that this version cannot say.");
    line(out, "pub fn encode(&self, version: i16, out: &mut BytesMut) -> Result<(), Error> {");
    line(out, "match self {");
    arms(out, apis, |api| {
        format!("{kind}::{}(message) => message.encode(out, version),", api.name)
    });
    line(out, "} }");
    line(out, "fn decode_body(key: ApiKey, version: i16, input: &mut Reader)");
    line(out, "-> Result<Self, Error> { match key {");
    arms(out, apis, |api| {
        format!(
            "ApiKey::{0} => messages::{1}::decode(input, version).map({kind}::{0}),",
            api.name,
            message(api)
        )
    });
    line(out, "} }\n}");
    for api in apis {
        emit_conversions(out, kind, api.name, &message(api));
    }
}

fn emit_conversions(out: &mut String, kind: &str, api: &str, message: &str) {
    line(
        out,
        &format!(
            "impl From<messages::{message}> for {kind} {{
                fn from(message: messages::{message}) -> Self {{ {kind}::{api}(message) }}
            }}
            impl TryFrom<{kind}> for messages::{message} {{
                type Error = Error;
                #[allow(clippy::wildcard_enum_match_arm)]
                fn try_from(any: {kind}) -> Result<Self, Error> {{
                    match any {{
                        {kind}::{api}(message) => Ok(message),
                        other => Err(Error::OtherApi {{
                            expected: ApiKey::{api}, found: other.api_key(),
                        }}),
                    }}
                }}
            }}"
        ),
    );
}
