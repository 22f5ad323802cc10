//! ApiVersions: what the listener serves, and the features of the cluster. The first answer of
//! every connection, so it depends on nothing but the image.

use protocol::api::ApiKey;
use protocol::error_code::ErrorCode;
use protocol::messages::api_versions_response::{
    ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
};
use protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use raft::{MIRROR_VERSION, MetadataImage};

use super::context::RequestContext;

/// The levels this node can work at, as name, lowest, highest. Levels of metadata and of the
/// quorum's form are Kafka 4.4's, for clients look at them; a feature whose function is not served
/// has no level here.
const SUPPORTED: [(&str, i16, i16); 3] =
    [("kraft.version", 0, 1), ("metadata.version", 7, 33), (MIRROR_VERSION, 0, 1)];

/// The version from which a feature may start at level 0; older clients cannot read that.
const ZERO_LEVELS_FROM: i16 = 4;

/// The version from which a client says which cluster and node it means (KIP-1242).
const MEANT_NODE_FROM: i16 = 5;

/// Answers ApiVersions.
pub fn api_versions(
    context: &RequestContext,
    request: &ApiVersionsRequest,
) -> ApiVersionsResponse {
    let refused = |code: ErrorCode| ApiVersionsResponse {
        error_code: code.code(),
        ..ApiVersionsResponse::default()
    };
    if context.version >= 3
        && !(is_software_name(&request.client_software_name)
            && is_software_name(&request.client_software_version))
    {
        return refused(ErrorCode::InvalidRequest);
    }
    let image = context.directory.image();
    if context.version >= MEANT_NODE_FROM
        && let Some(cluster) = &request.cluster_id
        && (image.cluster.id() != Some(cluster)
            || request.node_id != context.directory.node_id().0)
    {
        return refused(ErrorCode::RebootstrapRequired);
    }
    let served = ApiKey::ALL.iter().filter(|key| !key.is_private() && context.serves(**key));
    let epoch = context.directory.image_version();
    ApiVersionsResponse {
        api_keys: served.map(|key| listed(*key)).collect(),
        supported_features: supported_features(context.version),
        finalized_features_epoch: i64::try_from(epoch).unwrap_or(i64::MAX),
        finalized_features: finalized_features(&image),
        ..ApiVersionsResponse::default()
    }
}

/// The answer to a version this node does not know, in version 0: the error, and the versions it
/// does know (KIP-511).
pub fn unsupported_version() -> ApiVersionsResponse {
    ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        api_keys: vec![listed(ApiKey::ApiVersions)],
        ..ApiVersionsResponse::default()
    }
}

fn listed(key: ApiKey) -> ApiVersion {
    let versions = key.advertised_versions();
    ApiVersion {
        api_key: key.as_i16(),
        min_version: *versions.start(),
        max_version: *versions.end(),
    }
}

fn supported_features(version: i16) -> Vec<SupportedFeatureKey> {
    SUPPORTED
        .iter()
        .filter(|(_, lowest, _)| version >= ZERO_LEVELS_FROM || *lowest > 0)
        .map(|(name, lowest, highest)| SupportedFeatureKey {
            name: (*name).to_owned(),
            min_version: *lowest,
            max_version: *highest,
        })
        .collect()
}

fn finalized_features(image: &MetadataImage) -> Vec<FinalizedFeatureKey> {
    image
        .features
        .iter()
        .map(|(name, level)| FinalizedFeatureKey {
            name: name.to_string(),
            max_version_level: *level,
            min_version_level: *level,
        })
        .collect()
}

/// Letters and digits, with dots and dashes inside.
fn is_software_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    let outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    name.chars().all(inner) && outer(name.chars().next()) && outer(name.chars().next_back())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_names_are_kafkas() {
        for good in ["apache-kafka-java", "4.4.0", "a", "librdkafka", "2.16.0-rc1"] {
            assert!(is_software_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a b", "naïve", "."] {
            assert!(!is_software_name(bad), "{bad}");
        }
    }

    #[test]
    fn old_clients_are_told_of_no_level_zero() {
        let names = |version| {
            let features = supported_features(version).into_iter();
            features.map(|feature| feature.name).collect::<Vec<_>>()
        };
        assert_eq!(names(3), ["metadata.version"]);
        assert_eq!(names(4), ["kraft.version", "metadata.version", "mirror.version"]);
    }

    #[test]
    fn an_unknown_version_is_answered_with_the_known_ones() {
        let answer = unsupported_version();
        assert_eq!(answer.error_code, 35);
        let range = ApiKey::ApiVersions.versions();
        assert_eq!(answer.api_keys[0].max_version, *range.end());
        assert_eq!(answer.api_keys.len(), 1);
    }
}
