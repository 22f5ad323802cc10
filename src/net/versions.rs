//! What a peer serves, as its ApiVersions answer says, and what follows for a request.
//!
//! Owns the choice of a version. It never asks the peer.

use std::collections::BTreeMap;

use protocol::api::ApiKey;
use protocol::messages::ApiVersionsResponse;

/// The versions a peer serves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerVersions {
    served: BTreeMap<i16, (i16, i16)>,
}

impl PeerVersions {
    /// From the peer's answer.
    pub fn from_response(response: &ApiVersionsResponse) -> PeerVersions {
        let served = response
            .api_keys
            .iter()
            .map(|api| (api.api_key, (api.min_version, api.max_version)))
            .collect();
        PeerVersions { served }
    }

    /// The highest version both sides know; private keys are never advertised and have their own
    /// version 0. A client's mirroring key is only used with a peer that lists 98 and 99: Kafka
    /// uses key 94 for something else. What the nodes of one cluster say to each other is not a
    /// client's.
    pub fn pick(&self, key: ApiKey) -> Option<i16> {
        if key.is_private() {
            return Some(0);
        }
        let between_nodes = matches!(
            key,
            ApiKey::ReadMirrorStates | ApiKey::WriteMirrorStates | ApiKey::BumpLeaderEpochs
        );
        if key.is_mirroring() && !between_nodes && !self.serves_mirroring() {
            return None;
        }
        let (low, high) = *self.served.get(&key.as_i16())?;
        let ours = key.versions();
        let version = high.min(*ours.end());
        (version >= low.max(*ours.start())).then_some(version)
    }

    /// True if the peer has the mirroring APIs.
    pub fn serves_mirroring(&self) -> bool {
        self.served.contains_key(&ApiKey::ListMirrors.as_i16())
            && self.served.contains_key(&ApiKey::DescribeMirrors.as_i16())
    }

    /// The range the peer lists for a key, ours or not.
    pub fn listed(&self, key: i16) -> Option<(i16, i16)> {
        self.served.get(&key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(served: &[(i16, i16, i16)]) -> PeerVersions {
        PeerVersions {
            served: served.iter().map(|(key, low, high)| (*key, (*low, *high))).collect(),
        }
    }

    #[test]
    fn the_highest_common_version_is_picked() {
        let top = *ApiKey::Fetch.versions().end();
        assert_eq!(peer(&[(1, 4, 12)]).pick(ApiKey::Fetch), Some(12));
        assert_eq!(peer(&[(1, 4, top + 9)]).pick(ApiKey::Fetch), Some(top));
        assert_eq!(peer(&[(1, top + 1, top + 9)]).pick(ApiKey::Fetch), None);
        assert_eq!(peer(&[]).pick(ApiKey::Fetch), None);
    }

    #[test]
    fn kafkas_own_key_94_is_never_called_create_mirror() {
        assert_eq!(peer(&[(94, 0, 0)]).pick(ApiKey::CreateMirror), None);
        let mirrors = peer(&[(94, 0, 0), (98, 0, 0), (99, 0, 0)]);
        assert_eq!(mirrors.pick(ApiKey::CreateMirror), Some(0));
    }

    #[test]
    fn private_keys_need_no_advertisement() {
        assert_eq!(peer(&[]).pick(ApiKey::RaftRpc), Some(0));
    }
}
