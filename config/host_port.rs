//! An address as settings write it: `host:port`, `[v6]:port`.
//!
//! Owns parsing and printing. It never resolves a name.

use std::fmt;
use std::str::FromStr;

/// A host name or address with a port; an empty host means every interface, port 0 a free one.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct HostPort {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl HostPort {
    /// From its parts.
    pub fn new(host: impl Into<String>, port: u16) -> HostPort {
        HostPort { host: host.into(), port }
    }
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<HostPort, String> {
        let wanted = || format!("'{text}' is no address: write host:port");
        let (host, port) = text.rsplit_once(':').ok_or_else(wanted)?;
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host = match bracketed {
            Some(inner) => inner,
            None if host.contains(':') => {
                return Err(format!("'{text}' is no address: write [v6 address]:port"));
            }
            None => host,
        };
        let port: u16 =
            port.parse().map_err(|_| format!("'{text}' has no port between 0 and 65535"))?;
        if host.chars().any(|c| c.is_whitespace() || "/@,".contains(c)) {
            return Err(wanted());
        }
        Ok(HostPort { host: host.to_owned(), port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints_addresses() {
        for text in ["localhost:9092", "127.0.0.1:0", ":9092", "[::1]:9092"] {
            assert_eq!(text.parse::<HostPort>().unwrap().to_string(), text);
        }
        for text in ["localhost", "::1:9092", "a:99999", "a b:1", "http://a:1"] {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
    }
}
