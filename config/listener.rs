//! Listeners: `NAME://host:port`, what is advertised, which of them are the controller's.
//!
//! Owns their parsing and their rules. It never opens a socket.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Fault;
use crate::host_port::HostPort;

/// Who connects to a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerKind {
    /// Clients and, on the inter-broker listener, brokers.
    Broker,
    /// The quorum's own traffic, and brokers that talk to the controller.
    Controller,
}

/// One listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Its name, upper case.
    pub name: String,
    /// Where to bind. Port 0 is a free port.
    pub bind: HostPort,
    /// What clients are told. Port 0 means the port that was bound.
    pub advertised: HostPort,
    /// Who connects.
    pub kind: ListenerKind,
}

/// The settings that make the listeners.
pub(crate) struct ListenerSettings<'a> {
    pub listeners: &'a [String],
    pub advertised: &'a [String],
    pub controller_names: &'a [String],
    pub protocol_map: Option<&'a [String]>,
}

/// Puts the settings together; adds what is wrong to `faults`.
pub(crate) fn listeners(
    settings: &ListenerSettings<'_>,
    faults: &mut Vec<Fault>,
) -> Vec<Listener> {
    let bound = named_addresses("listeners", settings.listeners, faults);
    let advertised: BTreeMap<String, HostPort> =
        named_addresses("advertised.listeners", settings.advertised, faults).into_iter().collect();
    let controllers: BTreeSet<String> =
        settings.controller_names.iter().map(|name| name.to_uppercase()).collect();
    let protocols = protocols(settings.protocol_map.unwrap_or(&[]), faults);
    let implied = settings.protocol_map.is_none();

    let names: BTreeSet<&String> = bound.iter().map(|(name, _)| name).collect();
    if names.len() != bound.len() {
        faults.push(Fault::conflict("'listeners' uses one listener name twice"));
    }
    for name in advertised.keys().filter(|name| !names.contains(name)) {
        faults.push(Fault::conflict(format!(
            "'advertised.listeners' names {name}, which is not in 'listeners'"
        )));
    }
    let ports: Vec<u16> = bound.iter().map(|(_, at)| at.port).filter(|port| *port != 0).collect();
    if ports.iter().collect::<BTreeSet<_>>().len() != ports.len() {
        faults.push(Fault::conflict("'listeners' uses one port twice"));
    }
    let mut made = Vec::new();
    for (name, bind) in bound {
        let is_controller = controllers.contains(&name);
        let protocol = protocols.get(&name).cloned();
        match protocol.as_deref() {
            Some("PLAINTEXT") => {}
            None if name == "PLAINTEXT" || (implied && is_controller) => {}
            None if is_secure(&name) => faults.push(not_built(&name, &name)),
            Some(other) => faults.push(not_built(&name, other)),
            None => faults.push(Fault::conflict(format!(
                "Listener {name} has no security protocol: add {name}:PLAINTEXT to \
                 'listener.security.protocol.map'"
            ))),
        }
        let advertised = advertised.get(&name).cloned().unwrap_or_else(|| loopback(&bind));
        let kind = if is_controller { ListenerKind::Controller } else { ListenerKind::Broker };
        made.push(Listener { name, bind, advertised, kind });
    }
    made
}

/// What a client on this machine can reach when nothing is advertised for a wildcard address.
fn loopback(bind: &HostPort) -> HostPort {
    let host = match bind.host.as_str() {
        "" | "0.0.0.0" => "127.0.0.1",
        "::" => "::1",
        other => other,
    };
    HostPort::new(host, bind.port)
}

fn named_addresses(
    setting: &str,
    entries: &[String],
    faults: &mut Vec<Fault>,
) -> Vec<(String, HostPort)> {
    let mut named = Vec::new();
    for entry in entries {
        let Some((name, address)) = entry.split_once("://") else {
            faults.push(Fault::invalid(setting, entry, "a listener is written NAME://host:port"));
            continue;
        };
        match address.parse() {
            Ok(address) => named.push((name.to_uppercase(), address)),
            Err(reason) => faults.push(Fault::invalid(setting, entry, reason)),
        }
    }
    named
}

fn protocols(entries: &[String], faults: &mut Vec<Fault>) -> BTreeMap<String, String> {
    let mut protocols = BTreeMap::new();
    for entry in entries {
        match entry.split_once(':') {
            Some((name, protocol)) => {
                protocols.insert(name.to_uppercase(), protocol.to_uppercase());
            }
            None => faults.push(Fault::invalid(
                "listener.security.protocol.map",
                entry,
                "an entry is written NAME:PROTOCOL",
            )),
        }
    }
    protocols
}

fn is_secure(protocol: &str) -> bool {
    matches!(protocol, "SSL" | "SASL_PLAINTEXT" | "SASL_SSL")
}

fn not_built(listener: &str, protocol: &str) -> Fault {
    if is_secure(protocol) {
        Fault::conflict(format!(
            "Listener {listener} asks for {protocol}, which is not built yet: use PLAINTEXT"
        ))
    } else {
        Fault::conflict(format!(
            "Listener {listener} asks for {protocol}, which is no security protocol: use PLAINTEXT"
        ))
    }
}
