//! The settings of a mirror (config resource 64).
//!
//! Owns their names, types, defaults and texts. It never reads a value. Secrets are of type
//! PASSWORD: they are never shown.

use crate::schema::Kind::{List, Password, String};
use crate::schema::{Key, Valid};

/// Topic settings that are not copied from a source unless a mirror says otherwise.
pub(crate) const TOPIC_PROPERTIES_EXCLUDE: &str = "follower.replication.throttled.replicas,\
leader.replication.throttled.replicas,message.timestamp.difference.max.ms,\
log.message.timestamp.before.max.ms,log.message.timestamp.after.max.ms,message.timestamp.type,\
unclean.leader.election.enable,min.insync.replicas,mirror.name";

/// Every mirror setting: those acted on, then those of security, which is not built.
pub(crate) const MIRROR: &[Key] = &[
    dynamic(Key::new(
        "bootstrap.servers",
        List,
        None,
        "Addresses of the source cluster, host:port each.",
    ))
    .valid(Valid::NotEmpty)
    .high(),
    dynamic(Key::new(
        "mirror.acl.include",
        List,
        Some("*"),
        "ACLs to copy, resourceType;resourceName;operation;permissionType;principal each. Not \
         built.",
    ))
    .low()
    .not_built(),
    dynamic(Key::new(
        "mirror.groups.exclude",
        List,
        Some(""),
        "Groups whose offsets are not copied. Not built.",
    ))
    .valid(Valid::Regex)
    .low()
    .not_built(),
    dynamic(Key::new(
        "mirror.groups.include",
        List,
        Some(".*"),
        "Groups whose offsets are copied. Not built.",
    ))
    .valid(Valid::Regex)
    .low()
    .not_built(),
    dynamic(Key::new(
        "mirror.topic.properties.exclude",
        List,
        Some(TOPIC_PROPERTIES_EXCLUDE),
        "Topic settings that are not copied from the source, as regular expressions.",
    ))
    .valid(Valid::Regex)
    .low(),
    dynamic(Key::new(
        "mirror.topics.exclude",
        List,
        Some("__.*"),
        "Source topics that are never mirrored by pattern, as regular expressions.",
    ))
    .valid(Valid::Regex)
    .low(),
    dynamic(Key::new(
        "mirror.topics.include",
        List,
        Some(""),
        "Source topics to mirror as they appear, as regular expressions. The patterns that topics \
         were started by are kept here; discovery is not built yet.",
    ))
    .valid(Valid::Regex)
    .low()
    .stored(),
    dynamic(Key::new(
        "security.protocol",
        String,
        Some("PLAINTEXT"),
        "How to talk to the source. Only PLAINTEXT is built.",
    )),
    security("sasl.client.callback.handler.class", String, None).low(),
    security("sasl.jaas.config", Password, None),
    security("sasl.kerberos.service.name", String, None),
    security("sasl.login.callback.handler.class", String, None).low(),
    security("sasl.login.class", String, None).low(),
    security("sasl.mechanism", String, Some("PLAIN")),
    security("ssl.cipher.suites", List, None).low(),
    security("ssl.enabled.protocols", List, None),
    security("ssl.endpoint.identification.algorithm", String, Some("https")).low(),
    security("ssl.engine.factory.class", String, None).low(),
    security("ssl.key.password", Password, None),
    security("ssl.keymanager.algorithm", String, None).low(),
    security("ssl.keystore.certificate.chain", Password, None),
    security("ssl.keystore.key", Password, None),
    security("ssl.keystore.location", String, None),
    security("ssl.keystore.password", Password, None),
    security("ssl.keystore.type", String, Some("JKS")),
    security("ssl.protocol", String, Some("TLSv1.3")),
    security("ssl.provider", String, None).low(),
    security("ssl.secure.random.implementation", String, None).low(),
    security("ssl.trustmanager.algorithm", String, None).low(),
    security("ssl.truststore.certificates", Password, None),
    security("ssl.truststore.location", String, None),
    security("ssl.truststore.password", Password, None),
    security("ssl.truststore.type", String, Some("JKS")),
];

const fn dynamic(key: Key) -> Key {
    key.cluster_wide()
}

const fn security(
    name: &'static str,
    kind: crate::schema::Kind,
    default: Option<&'static str>,
) -> Key {
    dynamic(Key::new(name, kind, default, "TLS and SASL to a source are not built.")).not_built()
}
